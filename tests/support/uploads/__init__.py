"""Files for tests of uploads, written byte by byte when a test asks for them; none is stored."""

"""What no honest client sends, as tables: each case with the one answer it gets."""

"""Opens the object store that a URL names. A driver is imported only when chosen: an SDK costs memory and time."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from everturn.core.errors import Invalid
from everturn.files.objects import Objects


@contextmanager
def open_objects(url: str) -> Generator[Objects]:
    """`file:///folder` stores objects as files, `s3://bucket/prefix?endpoint=...` in a bucket.

    Raises Invalid for other URLs, and Unavailable when a folder can't be written; a bucket is not contacted before its
    first use.
    """
    scheme = urlsplit(url).scheme
    match scheme:
        case "file":
            from everturn.files.filesystem import open_files

            with closing(open_files(url)) as objects:
                yield objects
        case "s3":
            from everturn.files.s3 import open_s3

            with closing(open_s3(url)) as objects:
                yield objects
        case _:
            # The rest can contain a password of another kind of URL.
            raise Invalid(f"OBJECTS_URL begins with {scheme!r}; expected file:///folder or s3://bucket/prefix.")

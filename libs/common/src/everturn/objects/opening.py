"""Opens the object store that a URL names."""

import importlib
from urllib.parse import urlsplit

from everturn.errors import Invalid
from everturn.ports.objects import Objects

DRIVERS = {"file": "everturn.objects.files:open_files", "s3": "everturn.objects.s3:open_s3"}
"""By scheme; a driver's module is imported only when it is asked for, because an SDK costs memory and time."""


def open_objects(url: str) -> Objects:
    """`file:///folder` keeps objects as files, `s3://bucket/prefix?endpoint=...` in a bucket.

    Raises Invalid for other URLs, and Unavailable when a folder can't be written; a bucket is asked when it is used.
    """
    scheme = urlsplit(url).scheme
    if scheme not in DRIVERS:
        # The rest may hold a password of another kind of URL.
        raise Invalid(f"OBJECTS_URL begins with {scheme!r}; expected file:///folder or s3://bucket/prefix.")
    module, _, factory = DRIVERS[scheme].partition(":")
    return getattr(importlib.import_module(module), factory)(url)

"""Opens the object store that a URL names."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from everturn.errors import Invalid
from everturn.objects.files import FileObjects
from everturn.ports.objects import Objects


def open_objects(url: str) -> Objects:
    """`file:///folder` keeps objects as files. Raises Invalid for other URLs, Unavailable when it can't be written."""
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc or not path.is_absolute():
        raise Invalid(f"OBJECTS_URL is {url!r}; expected file:///folder.")
    objects = FileObjects(path)
    objects.prepare()
    return objects

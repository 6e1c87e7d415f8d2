"""Origins of web pages."""

from typing import Final
from urllib.parse import urlsplit

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def read_origin(text: str) -> str:
    """Normalize one origin to the form that browsers send. Raises ValueError for anything else.

    There are no wildcards.
    """
    parts = urlsplit(text)
    bare = not (parts.path or parts.query or parts.fragment or parts.username or parts.password)
    host = parts.hostname or ""
    if parts.scheme not in _DEFAULT_PORTS or not bare or not host or "*" in host or not text.isascii():
        raise ValueError(f"{text!r} is not an origin; write it as https://chat.example or http://localhost:3000.")
    name = f"[{host}]" if ":" in host else host
    port = parts.port
    return f"{parts.scheme}://{name}" + (f":{port}" if port and port != _DEFAULT_PORTS[parts.scheme] else "")

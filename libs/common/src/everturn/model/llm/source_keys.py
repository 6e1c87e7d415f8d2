"""When two addresses mean the same source: the key of a source, which keeps its number in the conversation's pool."""

import hashlib
import re
from urllib.parse import urlunsplit

from everturn.model.refs import parse_ref
from everturn.model.web_addresses import split_url

MAX_KEY_CHARS = 1000
"""An index row of the database holds no more than 2704 bytes."""
_TRACKING = frozenset(
    (
        "gclid",
        "gclsrc",
        "dclid",
        "gbraid",
        "wbraid",
        "fbclid",
        "msclkid",
        "yclid",
        "twclid",
        "igshid",
        "mc_cid",
        "mc_eid",
    )
)
"""Parameters that name the click and never the page. `utm_` stands before the others of that kind."""
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


def source_key(address: str) -> str:
    """The key of a web address, or of a file by its `fi:` ref. Raises Invalid for anything else.

    Two spellings of one address have one key: case of scheme and host, the default port, escapes that need none, the
    fragment and tracking parameters don't count. Other ports, addresses that are numbers, and all else do.
    """
    if address.startswith("fi:"):
        return _bounded(f"file:{parse_ref(address)}")
    return _bounded(normalize_url(address))


def normalize_url(url: str) -> str:
    """The one spelling of an http(s) address; a normal one stays as it is. Raises Invalid for any other."""
    parts, netloc = split_url(url)
    path = _ESCAPE.sub(_plain_escape, parts.path) or "/"
    return urlunsplit((parts.scheme.lower(), netloc, path, _without_tracking(parts.query), ""))


def _without_tracking(query: str) -> str:
    kept = [part for part in query.split("&") if part and not _is_tracking(part.partition("=")[0])]
    return _ESCAPE.sub(_plain_escape, "&".join(kept))


def _is_tracking(name: str) -> bool:
    name = _ESCAPE.sub(_plain_escape, name).lower()
    return name.startswith("utm_") or name in _TRACKING


def _plain_escape(found: re.Match[str]) -> str:
    char = chr(int(found[1], 16))
    return char if _UNRESERVED.fullmatch(char) else found[0].upper()


def _bounded(key: str) -> str:
    if len(key) <= MAX_KEY_CHARS and key.isascii():
        return key
    return f"sha256:{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()}"

"""When two addresses mean the same source: the key of a source, which keeps its number in the conversation's pool."""

import hashlib
import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from everturn.errors import Invalid
from everturn.model.refs import parse_ref

MAX_URL_CHARS = 4096
MAX_KEY_CHARS = 1000
"""An index row of the database holds no more than 2704 bytes."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
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
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")


def source_key(address: str) -> str:
    """The key of a web address, or of a file by its `fi:` ref. Raises Invalid for anything else.

    Two spellings of one address have one key: case of scheme and host, the default port, escapes that need none, the
    fragment and tracking parameters don't count. Other ports, addresses that are numbers, and all else do.
    """
    if address.startswith("fi:"):
        return _bounded(f"file:{parse_ref(address)}")
    if len(address) > MAX_URL_CHARS:
        raise Invalid(f"An address has at most {MAX_URL_CHARS} characters.")
    return _bounded(normalize_url(address))


def normalize_url(url: str) -> str:
    """The one spelling of an http(s) address; a normal one stays as it is. Raises Invalid for any other."""
    try:
        parts = urlsplit(_UNSAFE.sub(_escape, url.strip()))
        port = parts.port
    except ValueError as error:
        raise Invalid(f"This is no web address: {error}.") from error
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise Invalid("A web address begins with http:// or https:// and a host.")
    netloc = _netloc(parts, None if port == _DEFAULT_PORTS[scheme] else port)
    path = _ESCAPE.sub(_plain_escape, parts.path) or "/"
    return urlunsplit((scheme, netloc, path, _without_tracking(parts.query), ""))


def _netloc(parts: SplitResult, port: int | None) -> str:
    host = _spell_host((parts.hostname or "").lower())
    host = f"[{host}]" if ":" in host else host
    user, at, _ = parts.netloc.rpartition("@")
    return f"{user}{at}{host}" + (f":{port}" if port is not None else "")


def _spell_host(host: str) -> str:
    """In ASCII; a name that the old encoding can't spell stays in its own letters."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host


def _without_tracking(query: str) -> str:
    kept = [part for part in query.split("&") if part and not _is_tracking(part.partition("=")[0])]
    return _ESCAPE.sub(_plain_escape, "&".join(kept))


def _is_tracking(name: str) -> bool:
    name = _ESCAPE.sub(_plain_escape, name).lower()
    return name.startswith("utm_") or name in _TRACKING


def _plain_escape(found: re.Match[str]) -> str:
    char = chr(int(found[1], 16))
    return char if _UNRESERVED.fullmatch(char) else found[0].upper()


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def _bounded(key: str) -> str:
    if len(key) <= MAX_KEY_CHARS and key.isascii():
        return key
    return f"sha256:{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()}"

"""Web addresses: their caps, the one form in which each is requested, and those that a text holds.

Everything here is linear in its input and bounded: addresses come from models, programs, pages and people.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from everturn.errors import Invalid

MAX_URL_CHARS = 2048
"""What browsers and servers agree on; nothing looks into a longer address."""
MAX_HOST_CHARS = 253
"""Of a name in DNS (RFC 1035, section 2.3.4, without the length bytes)."""
MAX_FOUND = 500
"""Addresses that are taken out of one text."""
DEFAULT_PORTS = {"http": 80, "https": 443}

_UNSAFE = re.compile(r"[\x00-\x20\x7f]")
_HOST_AND_PORT = re.compile(r"([a-z0-9._~-]+|\[[0-9a-z:.%]+\])(:[0-9]+)?", re.IGNORECASE)
_KEPT = "%/:=&?~+!$,;'@()*[]|"
"""Of an address, besides letters and digits: what is escaped already stays so."""
_WRITTEN = re.compile(rf"(?=(https?://[^\s<>\"'`\\^{{}}|\x00-\x1f\x7f]{{1,{MAX_URL_CHARS}}}))", re.IGNORECASE)
_BARE = re.compile(
    r"(?<![\w@./:-])((?:[a-z0-9](?:[a-z0-9-]{0,62})\.){1,8}[a-z]{2,24})(?![\w@-])(?:/[^\s<>\"'`\\^{}|]{0,2000})?",
    re.IGNORECASE,
)
_TRAILING = frozenset(".,;:!?)]}*_~'\"\u00bb\u201d\u2019")
_MAX_TRAILING = 8


def check_url_length(url: str) -> None:
    """Raises Invalid for an address that is too long to be looked at."""
    if len(url) > MAX_URL_CHARS:
        raise Invalid(f"This address has {len(url)} characters. An address has at most {MAX_URL_CHARS}.")


def split_url(url: str) -> tuple[SplitResult, str]:
    """The parts of an http(s) address, and its spelled `user@host:port` without a default port.

    Raises Invalid for any other text.
    """
    check_url_length(url)
    try:
        parts = urlsplit(_UNSAFE.sub(_escape, url.strip()))
        port = parts.port
    except ValueError as error:
        raise Invalid(f"This is no web address: {error}.") from error
    scheme = parts.scheme.lower()
    if scheme not in DEFAULT_PORTS or not parts.hostname:
        raise Invalid("A web address begins with http:// or https:// and a host.")
    host = spell_host(parts.hostname.lower())
    host = f"[{host}]" if ":" in host else host
    user, at, _ = parts.netloc.rpartition("@")
    shown_port = "" if port is None or port == DEFAULT_PORTS[scheme] else f":{port}"
    return parts, f"{user}{at}{host}{shown_port}"


def spell_host(host: str) -> str:
    """In ASCII; a name that the old encoding can't spell stays in its own letters. Raises Invalid for a long name.

    The encoding takes up to 70 µs a character, because one character may stand for eighteen. So the length is
    checked before it, also of what the characters stand for.
    """
    if len(host) > MAX_HOST_CHARS or (not host.isascii() and len(unicodedata.normalize("NFKC", host)) > MAX_HOST_CHARS):
        raise Invalid(f"The name of a host has at most {MAX_HOST_CHARS} characters.")
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host


def canonical_url(url: str) -> str:
    """The address as it is requested: in ASCII, without fragment. Two addresses are the same if this form is.

    Nothing that a server would see is dropped, so the same form means the same bytes on the wire. Raises Invalid for
    what is not fetched: no http(s) address, one with a user name or a password, or a host that ASCII can't spell.
    """
    parts, netloc = split_url(url)
    if "@" in parts.netloc:
        raise Invalid("The address holds a name or a password.")
    if not netloc.isascii():
        raise Invalid("The name of the host can't be spelled in ASCII.")
    if not _HOST_AND_PORT.fullmatch(netloc):
        # The old encoding of names also makes blanks and other marks of some letters.
        raise Invalid("The name of the host holds a character that no host has.")
    try:
        path, query = quote(parts.path, safe=_KEPT), quote(parts.query, safe=_KEPT)
    except UnicodeError as error:
        raise Invalid("The address holds a character that can't be encoded.") from error
    canonical = urlunsplit((parts.scheme.lower(), netloc, path or "/", query, ""))
    check_url_length(canonical)
    return canonical


def try_canonical_url(url: str) -> str | None:
    """`canonical_url`, or None for what is not fetched."""
    try:
        return canonical_url(url)
    except Invalid:
        return None


def host_of(canonical: str) -> str:
    """The host of a canonical address."""
    return urlsplit(canonical).hostname or ""


def find_written_urls(text: str) -> frozenset[str]:
    """Canonical forms of the http(s) addresses that stand in a text. Marks at an end may belong to the address or not,
    so both readings count."""
    found: set[str] = set()
    for match in islice(_WRITTEN.finditer(text), MAX_FOUND):
        found.update(filter(None, map(try_canonical_url, _readings(match[1]))))
    return frozenset(found)


def find_typed_urls(text: str) -> frozenset[str]:
    """The same of a text that a person typed, who may leave out the scheme: `example.com/a` means both schemes."""
    found = set(find_written_urls(text))
    for match in islice(_BARE.finditer(text), MAX_FOUND):
        candidates = (f"{scheme}://{reading}" for reading in _readings(match[0]) for scheme in DEFAULT_PORTS)
        found.update(filter(None, map(try_canonical_url, candidates)))
    return frozenset(found)


def _readings(text: str) -> Iterator[str]:
    """The text as it is, without what follows a Markdown link, and without marks at its end."""
    for whole in dict.fromkeys((text, text.partition("](")[0], text.partition(")](")[0])):
        yield whole
        for left_out in range(1, _MAX_TRAILING + 1):
            if whole[-left_out : len(whole) - left_out + 1] not in _TRAILING:
                break
            yield whole[:-left_out]


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"

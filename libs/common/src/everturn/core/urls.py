"""Web addresses: their limits, the canonical form in which each is requested, and finding them in texts.

Everything here is linear in its input and bounded: addresses come from models, programs, pages and people.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from everturn.core.errors import Invalid

MAX_URL_CHARS = 2048
"""The common limit of browsers and servers; longer addresses are not processed."""
MAX_HOST_CHARS = 253
"""Limit for a name in DNS (RFC 1035, section 2.3.4, without the length bytes)."""
MAX_FOUND = 500
"""Addresses found in one text."""
MAX_READING_COST = 150_000
"""Limit for the readings of one text or one search: their characters, plus `_READING_COST` for each. About
50 ms of CPU."""
MAX_FOREIGN_HOSTS = 20
"""Distinct hosts of one text that are converted to ASCII. Each needs up to 2 ms."""
MAX_SEARCH_COST = 50_000_000
"""Limit for one search: the characters of its texts, once for each spelling of a host. About 50 ms of CPU."""
DEFAULT_PORTS = {"http": 80, "https": 443}

_UNSAFE = re.compile(r"[\x00-\x20\x7f]")
_HOST_AND_PORT = re.compile(r"([a-z0-9._~-]+|\[[0-9a-z:.%]+\])(:[0-9]+)?", re.IGNORECASE)
_KEPT = "%/:=&?~+!$,;'@()*[]|"
"""Characters of an address that stay as they are, besides letters and digits; existing escapes are kept."""
_WRITTEN = re.compile(rf"(?=(https?://[^\s<>\"'`\\^{{}}|\x00-\x1f\x7f]{{1,{MAX_URL_CHARS}}}))", re.IGNORECASE)
_BARE = re.compile(
    r"(?<![\w@./:-])((?:[a-z0-9](?:[a-z0-9-]{0,62})\.){1,8}[a-z]{2,24})(?![\w@-])(?:/[^\s<>\"'`\\^{}|]{0,2000})?",
    re.IGNORECASE,
)
_AUTHORITY = re.compile(r"(https?)://(\[[^\[\]/?#]*\]|[^\[\]/?#:@]*)([^#]*)", re.IGNORECASE | re.DOTALL)
_READING_COST = 50
_TRAILING = frozenset(".,;:!?)]}*_~'\"\u00bb\u201d\u2019")
_MAX_TRAILING = 8


def check_url_length(url: str) -> None:
    """Raises Invalid for an address that is too long to process."""
    if len(url) > MAX_URL_CHARS:
        raise Invalid(f"This address has {len(url)} characters. An address can have at most {MAX_URL_CHARS}.")


def split_url(url: str) -> tuple[SplitResult, str]:
    """The parts of an http(s) address, and its normalized `user@host:port` without a default port.

    Raises Invalid for any other text.
    """
    check_url_length(url)
    try:
        parts = urlsplit(_UNSAFE.sub(_escape, url.strip()))
        port = parts.port
    except ValueError as error:
        raise Invalid(f"This is not a web address: {error}.") from error
    scheme = parts.scheme.lower()
    if scheme not in DEFAULT_PORTS or not parts.hostname:
        raise Invalid("A web address begins with http:// or https:// and a host.")
    host = spell_host(parts.hostname.lower())
    host = f"[{host}]" if ":" in host else host
    user, at, _ = parts.netloc.rpartition("@")
    shown_port = "" if port is None or port == DEFAULT_PORTS[scheme] else f":{port}"
    return parts, f"{user}{at}{host}{shown_port}"


def spell_host(host: str) -> str:
    """The host in ASCII; a name that IDNA 2003 can't encode stays unchanged. Raises Invalid for a long name.

    The encoding needs up to 70 µs a character, because one character can expand to eighteen. So the length is checked
    first, also in expanded form.
    """
    if len(host) > MAX_HOST_CHARS or (not host.isascii() and len(unicodedata.normalize("NFKC", host)) > MAX_HOST_CHARS):
        raise Invalid(f"The name of a host can have at most {MAX_HOST_CHARS} characters.")
    return host if host.isascii() else _spell_in_ascii(host)


@lru_cache(maxsize=512)
def _spell_in_ascii(host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def canonical_url(url: str) -> str:
    """The address as it is requested: in ASCII, without fragment. Two addresses are the same if this form is.

    It drops nothing that a server would see, so the same form means the same bytes on the wire. Raises Invalid for what
    is not fetched: other schemes, a user name or a password, or a host that has no ASCII form.
    """
    parts, netloc = split_url(url)
    if "@" in parts.netloc:
        raise Invalid("The address contains a user name or a password.")
    if not netloc.isascii():
        raise Invalid("The host name can't be written in ASCII.")
    if not _HOST_AND_PORT.fullmatch(netloc):
        # IDNA 2003 also turns some letters into blanks and other marks.
        raise Invalid("The host name contains a character that host names can't have.")
    try:
        path, query = quote(parts.path, safe=_KEPT), quote(parts.query, safe=_KEPT)
    except UnicodeError as error:
        raise Invalid("The address contains a character that can't be encoded.") from error
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
    """Canonical forms of the http(s) addresses in a text. Marks at an end can be part of the address or not, so both
    readings count. In a text that exceeds the work limit, only some are found."""
    found: set[str] = set()
    foreign: dict[str, str] = {}
    cost = 0
    for reading in (each for match in islice(_WRITTEN.finditer(text), MAX_FOUND) for each in _readings(match[1])):
        cost += _READING_COST + len(reading)
        if cost > MAX_READING_COST:
            break
        authority = _AUTHORITY.match(reading)
        if authority is None or authority[2].isascii():
            found.update(filter(None, [try_canonical_url(reading)]))
        elif authority[2] in foreign or len(foreign) < MAX_FOREIGN_HOSTS:
            if authority[2] not in foreign:
                foreign[authority[2]] = host_of(try_canonical_url(f"http://{authority[2]}") or "")
            url = f"{authority[1]}://{foreign[authority[2]]}{authority[3]}"
            found.update(filter(None, [try_canonical_url(url)]))
    return frozenset(found)


class TypedSearch:
    """Finds which of a few canonical addresses occur in texts that a person typed.

    The scheme can be left out: `example.com/a` means both. The search is for the hosts of these addresses only, because
    encoding every host of a text would take seconds. All texts together have one work limit; addresses beyond it are
    not found. Neither are hosts in compatibility letters, such as those of full width.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self.found: set[str] = set()
        self._missing = set(addresses)
        self._hosts = {spelling: host for host in set(map(_authority_host, self._missing)) for spelling in _spell(host)}
        self._longest = max(map(len, self._missing), default=0)
        self._search_cost = 0
        self._reading_cost = 0

    def read(self, text: str) -> None:
        """Adds the addresses in the text to `found`."""
        self._search_cost += len(text) * (1 + len(self._hosts))
        if self._is_over():
            return
        # The only capital letter whose lower case has another length would shift all that follows.
        folded = text.lower() if text.isascii() else text.replace("\u0130", "i").lower()
        for spelling in self._hosts:
            at = folded.find(spelling)
            for _ in range(MAX_FOUND):
                if at < 0 or self._is_over():
                    break
                self._read_host(text, folded, at)
                at = folded.find(spelling, at + 1)

    def _read_host(self, text: str, folded: str, at: int) -> None:
        for scheme in DEFAULT_PORTS:
            start = at - len(f"{scheme}://")
            if start >= 0 and folded.startswith(f"{scheme}://", start) and (match := _WRITTEN.match(text, start)):
                self._read_readings(match[1], ())
        if match := _BARE.match(text, at):
            self._read_readings(match[0], tuple(DEFAULT_PORTS))

    def _read_readings(self, whole: str, schemes: tuple[str, ...]) -> None:
        self._reading_cost += _READING_COST + len(whole) // 8
        for reading in _readings(whole):
            for url in [f"{scheme}://{reading}" for scheme in schemes] or [reading]:
                self._reading_cost += _READING_COST
                authority = _AUTHORITY.match(url)
                host = authority and self._hosts.get(authority[2].lower())
                # No canonical form is shorter than the typed one, except for a question mark without a query.
                if not authority or not host or len(authority[3]) > self._longest + 1:
                    continue
                self._reading_cost += len(authority[3])
                if self._is_over():
                    return
                address = try_canonical_url(f"{authority[1]}://{host}{authority[3]}")
                if address in self._missing:
                    self._missing.remove(address)
                    self.found.add(address)

    def _is_over(self) -> bool:
        spent = self._search_cost > MAX_SEARCH_COST or self._reading_cost > MAX_READING_COST
        return spent or not self._missing


def _authority_host(canonical: str) -> str:
    match = _AUTHORITY.match(canonical)
    return match[2] if match else ""


def _spell(host: str) -> Iterator[str]:
    """The ways in which a person can type the ASCII name of a host, in lower case."""
    if not host:
        return
    names = {host}
    if "xn--" in host:
        try:
            name = host.encode().decode("idna").lower()
        except UnicodeError:
            name = host
        names |= {unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)}
    # IDNA 2003 encodes the German sharp s as `ss`.
    yield from names | {name.replace("ss", "\u00df") for name in names}


def _readings(text: str) -> Iterator[str]:
    """The text as it is, without the rest after a Markdown link, and without marks at its end."""
    for whole in dict.fromkeys((text, text.partition("](")[0], text.partition(")](")[0])):
        yield whole
        for left_out in range(1, _MAX_TRAILING + 1):
            if whole[-left_out : len(whole) - left_out + 1] not in _TRAILING:
                break
            yield whole[:-left_out]


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"

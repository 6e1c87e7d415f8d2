"""The type of a file: libmagic detects its content, which its extension and declared type must match; and its safe
name."""

import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Importing pylibmagic makes its libmagic findable, so it comes before magic.
import pylibmagic  # isort: skip  # noqa: F401  # pyright: ignore[reportUnusedImport]
import magic

from ingress.attachments.structure.limits import Form

MAX_NAME_BYTES = 255
MAX_READ_CHARS = 512
"""A longer name is first shortened in the middle: the time to normalize it would be quadratic in its length."""
_MAX_END_CHARS = 24
"""How many of these come from its end: more than an extension has."""
FALLBACK_NAME = "file"

_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control characters, format characters such as bidi overrides and zero-width ones, surrogates, characters for
private use, unassigned ones, line separators."""
_NON_JOINER, _JOINER, _EMOJI_STYLE = "\u200c", "\u200d", "\ufe0f"
_PICTURES = frozenset({"So", "Sk", "Sm"})
"""Categories of emoji; skin colours are modifier symbols."""
_JOINING_SCRIPT = re.compile(
    r"(?:ADLAM|ARABIC|BENGALI|DEVANAGARI|EXTENDED ARABIC|GUJARATI|GURMUKHI|KANNADA|KHMER|MALAYALAM|MONGOLIAN|MYANMAR"
    r"|NKO|ORIYA|SINHALA|SYRIAC|TAMIL|TELUGU)\b"
)
"""Begins the names of characters of scripts that are spelled with joiners, such as those of Persian and Hindi. In other
scripts a joiner only makes two different names look the same."""
_SPELLING = frozenset({"Lo", "Lm", "Lu", "Ll", "Mn", "Mc", "Nd"})
_VIRAMA_CLASS = 9
_FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(char)) for char in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""The flags that Unicode recommends: England, Scotland, Wales. The tags of any others could hide a text."""
_SPACES = re.compile(r"\s+")

_SNIFFED_BYTES = 262_144
_UNSPECIFIC = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_PACKED = frozenset({"application/gzip", "application/x-7z-compressed", "application/x-rar", "text/rtf"})
"""Types that libmagic can report for text because of its first bytes, but that are not accepted; RTF carries
objects."""
_ZIP_HEADS = (b"PK\x03\x04", b"PK\x05\x06")
"""The first bytes of a zip archive, and of an empty one."""
_OLE_HEAD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")

_TEXT_MIMES: Mapping[str, str] = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
}
"""The types under which some texts are stored. All others are plain text, whatever they are, which no browser runs."""

PLAIN = frozenset({"", ".txt", ".log", *_TEXT_MIMES})
"""Names with which zero bytes are allowed at first: the file may be UTF-16 without a mark."""
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def clean_name(raw: str) -> str:
    """The last part of the path `raw`, in NFC, 1 to 255 bytes, never `.` or `..`.

    Invisible characters are dropped, except joiners in scripts that are spelled with them, and inside emoji.
    """
    last = re.split(r"[/\\]", raw)[-1]
    if len(last) > MAX_READ_CHARS:
        last = last[: MAX_READ_CHARS - _MAX_END_CHARS] + last[-_MAX_END_CHARS:]
    visible = unicodedata.normalize("NFC", last)
    # Without what is dropped, other characters can be composed or change places, and joiners can lose their neighbours.
    while (fewer := unicodedata.normalize("NFC", _drop_invisible(visible))) != visible:
        visible = fewer
    name = _SPACES.sub(" ", visible).strip()
    if not name.strip(". "):
        return FALLBACK_NAME
    return shorten(name)


def _drop_invisible(text: str) -> str:
    tags = {place for flag in _FLAGS for place in _find_tags(text, flag)}
    return "".join(
        char
        for place, char in enumerate(text)
        if unicodedata.category(char) not in _DROPPED or place in tags or _joins(text, place)
    )


def _find_tags(text: str, flag: str) -> Iterator[int]:
    for found in re.finditer(flag, text):
        yield from range(found.start() + 1, found.end())


def _joins(text: str, place: int) -> bool:
    """Whether the joiner or non-joiner at this place is part of the spelling, or of an emoji."""
    char = text[place]
    if char not in (_NON_JOINER, _JOINER):
        return False
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    if before and _is_spelled_with_joiners(before):
        # After a virama it also stands at the end of a word.
        return unicodedata.combining(before) == _VIRAMA_CLASS or (bool(after) and _is_spelled_with_joiners(after))
    return char == _JOINER and _joins_emoji(text, place)


def _is_spelled_with_joiners(char: str) -> bool:
    if unicodedata.category(char) not in _SPELLING:
        return False
    return _JOINING_SCRIPT.match(unicodedata.name(char, "")) is not None


def _joins_emoji(text: str, place: int) -> bool:
    """Whether a joiner combines two emoji into one, such as a person and a laptop."""
    before, after = text[:place].rstrip(_EMOJI_STYLE)[-1:], text[place + 1 : place + 2]
    return bool(before and after) and all(unicodedata.category(char) in _PICTURES for char in (before, after))


def shorten(name: str, suffix: str = "") -> str:
    """Put `suffix` before the extension, cutting the stem so that all fits in 255 bytes."""
    stem, extension = split_extension(name)
    room = MAX_NAME_BYTES - len((suffix + extension).encode())
    # A cut may leave a joiner or tags at the end, which are dropped there.
    kept = _drop_invisible(stem.encode()[:room].decode("utf-8", errors="ignore")).rstrip()
    return f"{kept or FALLBACK_NAME[:room]}{suffix}{extension}"


def split_extension(name: str) -> tuple[str, str]:
    """`report.csv` is (`report`, `.csv`); an extension has at most 16 bytes and something before it."""
    stem, dot, extension = name.rpartition(".")
    if dot and stem and 0 < len(extension.encode()) <= 16 and " " not in extension:
        return stem, f".{extension}"
    return name, ""


def name_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Clean and unique names: a second `name.ext` becomes `name (2).ext`. Upper and lower case count as the same."""
    taken: set[str] = set()
    kept: list[str] = []
    for raw in names:
        name = clean_name(raw)
        free, number = name, 1
        while free.casefold() in taken:
            number += 1
            free = shorten(name, f" ({number})")
        taken.add(free.casefold())
        kept.append(free)
    return tuple(kept)


class NotAccepted(Exception):
    """This file's type is not accepted (415)."""


class NotAcceptable(Exception):
    """This file is of an accepted type but not acceptable (422)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An accepted type: its family decides the cap, its extensions and declared types restrict names and declarations,
    and its form selects the structure check."""

    mime: str
    family: str
    extensions: frozenset[str]
    declared: frozenset[str]
    form: Form


def _kind(mime: str, family: str, extensions: str, *also: str, form: Form) -> Kind:
    return Kind(mime, family, frozenset(f".{name}" for name in extensions.split()), frozenset({mime, *also}), form)


def _office(form: Form, kind: str) -> Kind:
    mime = f"application/vnd.openxmlformats-officedocument.{kind}"
    return _kind(mime, "doc", form, "application/zip", "application/x-zip-compressed", form=form)


_IMAGES = (
    _kind("image/jpeg", "image", "jpg jpeg jpe jfif", "image/jpg", "image/pjpeg", form="jpeg"),
    _kind("image/png", "image", "png", "image/x-png", form="png"),
    _kind("image/gif", "image", "gif", form="gif"),
    _kind("image/webp", "image", "webp", form="webp"),
)
_PDF = _kind("application/pdf", "doc", "pdf", "application/x-pdf", form="pdf")
_BINARY: Mapping[str, Kind] = {kind.mime: kind for kind in (*_IMAGES, _PDF)}
_OFFICE = (
    _office("docx", "wordprocessingml.document"),
    _office("pptx", "presentationml.presentation"),
    _office("xlsx", "spreadsheetml.sheet"),
)
_OFFICE_BY_EXTENSION: Mapping[str, Kind] = {extension: kind for kind in _OFFICE for extension in kind.extensions}

_TEXT = Kind("text/plain", "text", frozenset(), frozenset(), "text")
ACCEPTED_KINDS = (*_IMAGES, _PDF, *_OFFICE, _TEXT)
"""All accepted types. Text has no extensions of its own: any name is allowed except those of the other types."""
_BINARY_DECLARED = frozenset(name for kind in (*_BINARY.values(), *_OFFICE) for name in kind.declared)
_BINARY_EXTENSIONS = frozenset(name for kind in (*_BINARY.values(), *_OFFICE) for name in kind.extensions)


class Sniffer:
    """libmagic, which is not thread-safe."""

    def __init__(self) -> None:
        self._magic = magic.Magic(mime=True)
        self._lock = threading.Lock()

    def sniff(self, data: bytes) -> str:
        """The MIME type that libmagic detects; blocking, so call it in a thread."""
        with self._lock:
            return str(self._magic.from_buffer(data[:_SNIFFED_BYTES]))


def decide_kind(name: str, declared: str, sniffed: str, data: bytes) -> Kind:
    """The accepted type of a file. Raises NotAccepted or NotAcceptable with the reason."""
    extension = split_extension(name)[1].lower()
    if not data:
        raise NotAcceptable("it is empty")
    if sniffed in _BINARY:
        return _decide_binary(_BINARY[sniffed], extension, declared, data)
    if extension in _OFFICE_BY_EXTENSION:
        return _decide_office(_OFFICE_BY_EXTENSION[extension], declared, sniffed, data)
    return _decide_text(extension, declared, sniffed, data)


def _decide_binary(kind: Kind, extension: str, declared: str, data: bytes) -> Kind:
    if extension not in kind.extensions:
        raise NotAccepted(f"its content is {kind.mime}, which does not match the extension {extension or '(none)'}")
    if declared not in kind.declared | _UNSPECIFIC:
        raise NotAccepted(f"its content is {kind.mime}, but it was declared as {declared}")
    if b"PK\x05\x06" in data[-65_557:]:
        raise NotAcceptable("it is also an archive")
    return kind


def _decide_office(kind: Kind, declared: str, sniffed: str, data: bytes) -> Kind:
    """Check that the first bytes are a package; the structure check verifies its content and its extension."""
    if data.startswith(_OLE_HEAD) and _ENCRYPTED_PACKAGE in data:
        raise NotAcceptable("it is encrypted")
    if not data.startswith(b"PK"):
        raise NotAccepted(f"its content is {sniffed}, which does not match its extension")
    if declared not in kind.declared | _UNSPECIFIC:
        raise NotAccepted(f"it was declared as {declared}, which does not match its extension")
    return kind


def _decide_text(extension: str, declared: str, sniffed: str, data: bytes) -> Kind:
    """Accept any name except those of another accepted type; the structure check decides whether it is text."""
    if extension in _BINARY_EXTENSIONS:
        raise NotAccepted(f"its content is {sniffed}, which does not match its extension {extension}")
    if data.startswith(_ZIP_HEADS):
        # Before the declared type: office files may be declared as zip, so it is a known declaration.
        named = extension or "no extension"
        raise NotAccepted(f"its type ({sniffed}, {named}) is not accepted: it is a zip archive")
    if declared in _BINARY_DECLARED:
        raise NotAccepted(f"it was declared as {declared}, but its content is {sniffed}")
    is_text = sniffed.startswith("text/") or data.startswith(_UTF16_MARKS) or b"\0" not in data[:_SNIFFED_BYTES]
    if sniffed in _PACKED or not (is_text or extension in PLAIN):
        raise NotAccepted(f"its type ({sniffed}, {extension or 'no extension'}) is not accepted")
    mime = _TEXT_MIMES.get(extension, "text/plain")
    return _kind(mime, "text", extension.removeprefix("."), form="text")

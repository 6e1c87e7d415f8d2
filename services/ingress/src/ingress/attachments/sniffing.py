"""What a file is: its content by libmagic, which its extension and its declared type must agree with."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import pylibmagic  # isort: skip  # makes its libmagic findable, so it comes before magic
import magic

from ingress.attachments.names import split_extension

_SNIFFED_BYTES = 262_144
_UNSPECIFIC = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_ZIP_LOOKS = frozenset({"application/zip", "application/gzip", "application/x-7z-compressed", "application/x-rar"})


MAGIC_LIBRARY = pylibmagic.__version__
"""The release of the library that sniffs, with its database."""


class NotAccepted(Exception):
    """This file's type is not accepted (415)."""


class NotAcceptable(Exception):
    """This file is of an accepted type but not acceptable (422)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An accepted type: its family decides the cap, its extensions and declared types what may be said of it."""

    mime: str
    family: str
    extensions: frozenset[str]
    declared: frozenset[str]


def _kind(mime: str, family: str, extensions: str, *also: str) -> Kind:
    return Kind(mime, family, frozenset(f".{name}" for name in extensions.split()), frozenset({mime, *also}))


_IMAGES = (
    _kind("image/jpeg", "image", "jpg jpeg jpe jfif", "image/jpg", "image/pjpeg"),
    _kind("image/png", "image", "png", "image/x-png"),
    _kind("image/gif", "image", "gif"),
    _kind("image/webp", "image", "webp"),
)
_PDF = _kind("application/pdf", "doc", "pdf", "application/x-pdf")
_BINARY: Mapping[str, Kind] = {kind.mime: kind for kind in (*_IMAGES, _PDF)}

_TEXT_EXTENSIONS: Mapping[str, str] = {
    ".txt": "text/plain", ".text": "text/plain", ".log": "text/plain", ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".csv": "text/csv", ".tsv": "text/tab-separated-values", ".json": "text/plain", ".jsonl": "text/plain",
    ".yaml": "text/plain", ".yml": "text/plain", ".toml": "text/plain", ".ini": "text/plain", ".cfg": "text/plain",
    ".py": "text/plain", ".sql": "text/plain", ".r": "text/plain", ".tex": "text/plain", ".rst": "text/plain",
    ".js": "text/plain", ".ts": "text/plain", ".java": "text/plain", ".c": "text/plain", ".h": "text/plain",
    ".cpp": "text/plain", ".go": "text/plain", ".rs": "text/plain", ".sh": "text/plain", ".css": "text/plain",
}  # fmt: skip
"""Extensions of text files and what we keep them as; code and data are plain text, which no browser runs."""
_TEXT_DECLARED = frozenset(
    f"application/{name}"
    for name in (
        *("json", "x-ndjson", "jsonl", "yaml", "x-yaml", "toml", "csv", "vnd.ms-excel"),
        *("javascript", "x-javascript", "typescript", "sql", "x-sh", "x-python-code"),
    )
)
"""What browsers declare for such files; `application/vnd.ms-excel` is what Windows says of CSV."""
_ACTIVE_TEXT = frozenset({"text/html", "text/xml", "application/xml", "image/svg+xml", "application/xhtml+xml"})


class Sniffer:
    """libmagic, which is not safe to use from two threads at once."""

    def __init__(self) -> None:
        self._magic = magic.Magic(mime=True)
        self._lock = threading.Lock()

    def sniff(self, data: bytes) -> str:
        """The MIME type libmagic sees; blocking, so run it in a thread."""
        with self._lock:
            return str(self._magic.from_buffer(data[:_SNIFFED_BYTES]))


def decide_kind(name: str, declared: str, sniffed: str, data: bytes) -> Kind:
    """The accepted type of a file. Raises NotAccepted or NotAcceptable with the reason."""
    extension = split_extension(name)[1].lower()
    if not data:
        raise NotAcceptable("it is empty")
    if sniffed in _BINARY:
        return _decide_binary(_BINARY[sniffed], extension, declared, data)
    if extension not in _TEXT_EXTENSIONS and (extension or not sniffed.startswith("text/")):
        raise NotAccepted(f"its type ({sniffed}, {extension or 'no extension'}) is not accepted")
    return _decide_text(extension, declared, sniffed, data)


def _decide_binary(kind: Kind, extension: str, declared: str, data: bytes) -> Kind:
    if extension not in kind.extensions:
        raise NotAccepted(f"its content is {kind.mime}, which the extension {extension or '(none)'} does not say")
    if declared not in kind.declared | _UNSPECIFIC:
        raise NotAccepted(f"its content is {kind.mime}, but it was declared as {declared}")
    if b"PK\x05\x06" in data[-65_557:]:
        raise NotAcceptable("it is an archive as well")
    return kind


def _decide_text(extension: str, declared: str, sniffed: str, data: bytes) -> Kind:
    if sniffed in _ACTIVE_TEXT or declared in _ACTIVE_TEXT:
        raise NotAccepted("HTML, XML and SVG are not accepted")
    if declared not in _UNSPECIFIC | _TEXT_DECLARED and not declared.startswith("text/"):
        raise NotAccepted(f"it was declared as {declared}, which its extension {extension} does not say")
    if sniffed in _ZIP_LOOKS:
        raise NotAccepted(f"its content is {sniffed}, which its extension {extension} does not say")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotAcceptable(f"it is not UTF-8 text at byte {error.start}") from error
    if "\x00" in text:
        raise NotAcceptable("it is not text: it holds zero bytes")
    return _kind(_TEXT_EXTENSIONS.get(extension, "text/plain"), "text", extension.removeprefix("."))

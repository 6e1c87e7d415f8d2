"""What kind of file something is, from its name and its first bytes."""

from pathlib import PurePosixPath
from types import MappingProxyType

BINARY = "application/octet-stream"
TEXT = "text/plain"
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_OFFICE = "application/vnd.openxmlformats-officedocument"
_BY_SUFFIX = MappingProxyType(
    {
        ".css": "text/css",
        ".csv": "text/csv",
        ".gif": "image/gif",
        ".htm": "text/html",
        ".html": "text/html",
        ".jpeg": "image/jpeg",
        ".jpg": "image/jpeg",
        ".js": "text/javascript",
        ".json": "application/json",
        ".markdown": "text/markdown",
        ".md": "text/markdown",
        ".pdf": "application/pdf",
        ".png": "image/png",
        ".py": "text/x-python",
        ".svg": "image/svg+xml",
        ".tsv": "text/tab-separated-values",
        ".txt": TEXT,
        ".webp": "image/webp",
        ".xml": "application/xml",
        ".yaml": "application/yaml",
        ".yml": "application/yaml",
        ".docx": f"{_OFFICE}.wordprocessingml.document",
        ".pptx": f"{_OFFICE}.presentationml.presentation",
        ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
        ".zip": "application/zip",
    }
)
"""A fixed table: what the machine's own mime files say would differ from worker to worker."""
_ZIP_SUFFIXES = (".docx", ".pptx", ".xlsx", ".zip")
_TEXT_APPLICATION = frozenset({"application/json", "application/xml", "application/yaml", "application/csv"})
_SNIFFED_BYTES = 4096


def is_text(mime: str) -> bool:
    """Whether a file of this type reads as text."""
    return mime.startswith("text/") or mime in _TEXT_APPLICATION or mime == "image/svg+xml"


def sniff_mime(name: str, data: bytes) -> str:
    """The type of a produced file. Bytes decide what is binary; the name only tells texts and zip containers apart."""
    for signature, mime in _SIGNATURES:
        if data.startswith(signature):
            return mime
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    suffix = PurePosixPath(name).suffix.lower()
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _BY_SUFFIX[suffix] if suffix in _ZIP_SUFFIXES else "application/zip"
    if not _looks_like_text(data):
        return BINARY
    named = _BY_SUFFIX.get(suffix, TEXT)
    return named if is_text(named) else TEXT


def _looks_like_text(data: bytes) -> bool:
    head = data[:_SNIFFED_BYTES]
    if b"\x00" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # A character that the cut has split is no sign of binary data.
        return len(data) > _SNIFFED_BYTES and error.start >= len(head) - 3
    return True

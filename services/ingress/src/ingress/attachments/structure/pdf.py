"""PDFs: complete, not encrypted, of bounded size when unpacked, and without scripts, actions or embedded files."""

import io
import re
import zlib
from collections.abc import Iterable
from typing import Any, cast

import pikepdf

from ingress.attachments.structure.limits import MAX_PAGES, MAX_PDF_UNPACKED_BYTES, Sound, Unsound

_TAIL_BYTES = 1024
"""How much can follow the last `%%EOF`, as readers accept it."""
_HEAD_BYTES = 1024
_CHUNK_BYTES = 2**18
_HEAD = b"%PDF-"
_BLANKS = b"\xef\xbb\xbf \t\r\n\f"
"""Bytes that some programs write before the header and all readers skip."""
_REPAIRED = re.compile(
    r"file is damaged|xref not found|can't find startxref|Attempting to reconstruct cross-reference table|"
    r"expected endstream|attempting to recover stream length|recovered stream length: [1-9]"
)
"""Warnings of damage that every reader repairs in the same way without loss."""
_HARMLESS = "Resources is missing or invalid; repairing"
_TOO_MANY = f"it has more than {MAX_PAGES} pages"

_STRING = re.compile(rb"\((?:[^()\\]|\\.)*\)|<[0-9a-fA-F\s]*>", re.DOTALL)
_NAME = re.compile(rb"/[^\s/<>\[\](){}%]+")
_FORBIDDEN = {
    b"/JavaScript": "JavaScript",
    b"/JS": "JavaScript",
    b"/Launch": "an action that starts a program",
    b"/ImportData": "an action that reads files",
    b"/GoToE": "an embedded file",
    b"/EmbeddedFile": "an embedded file",
    b"/EmbeddedFiles": "an embedded file",
    b"/RichMedia": "an embedded program",
    b"/XFA": "an XFA form",
}
_FILE_SPECS = frozenset({b"/F", b"/UF", b"/Filespec"})
_IMAGE_FILTERS = frozenset({"/DCTDecode", "/JPXDecode", "/JBIG2Decode", "/CCITTFaxDecode"})
_FLATE = frozenset({"/FlateDecode", "/Fl"})


def check_pdf(data: bytes) -> Sound:
    """Raises Unsound, and what the reader raises for unreadable content.

    Readers interpret a damaged file differently, and a scanner may see another file than a reader. So a file whose
    damage readers commonly repair is rewritten: what is stored is what was checked.
    """
    _check_frame(data)
    try:
        intact = data.startswith(_HEAD) and _is_intact(data)
    except pikepdf.PasswordError as error:
        raise Unsound("it is encrypted") from error
    except pikepdf.PdfError:
        intact = False
    if intact:
        return Sound()
    return Sound(content=_rebuild(data.lstrip(_BLANKS)), change="Its structure was damaged and has been rebuilt.")


def _is_intact(data: bytes) -> bool:
    """Raises Unsound, and PdfError for damage."""
    with pikepdf.open(io.BytesIO(data), attempt_recovery=False, suppress_warnings=True) as pdf:
        _check_document(pdf)
        # A page without resources is not interpreted differently by readers.
        intact = all(warning.endswith(_HARMLESS) for warning in _load_warnings(pdf))
        _check_pages(pdf)
    return intact


def _rebuild(data: bytes) -> bytes:
    try:
        with pikepdf.open(io.BytesIO(data), suppress_warnings=True) as pdf:
            _check_document(pdf)
            _check_pages(pdf)
            if not all(_REPAIRED.search(warning) or warning.endswith(_HARMLESS) for warning in _load_warnings(pdf)):
                raise Unsound("it is damaged")
            out = io.BytesIO()
            pdf.save(out)
        rebuilt = out.getvalue()
        if not _is_intact(rebuilt):
            raise Unsound("it is damaged")
    except pikepdf.PasswordError as error:
        raise Unsound("it is encrypted") from error
    except pikepdf.PdfError as error:
        raise Unsound("it is damaged or truncated") from error
    return rebuilt


def _check_document(pdf: pikepdf.Pdf) -> None:
    if pdf.is_encrypted:
        raise Unsound("it is encrypted")
    if int(pdf.Root.Pages.get("/Count", 0)) > MAX_PAGES:
        raise Unsound(_TOO_MANY)
    _check_objects(cast(Iterable[Any], pdf.objects))


def _check_pages(pdf: pikepdf.Pdf) -> None:
    """Listing the pages repairs their tree, and warns about what it repairs."""
    if len(pdf.pages) > MAX_PAGES:
        raise Unsound(_TOO_MANY)


def _load_warnings(pdf: pikepdf.Pdf) -> list[str]:
    warnings = cast(list[object], pdf.get_warnings())  # pyright: ignore[reportUnknownMemberType] it has no types
    return [str(warning) for warning in warnings]


def _check_frame(data: bytes) -> None:
    if not data.lstrip(_BLANKS).startswith(_HEAD) or b"<script" in data[:_HEAD_BYTES].lower():
        raise Unsound("it is also a file of another type")
    end = data.rfind(b"%%EOF")
    if end < 0:
        raise Unsound("it is truncated")
    if len(data) - end > _TAIL_BYTES:
        raise Unsound("data follows its end")


def _check_objects(objects: Iterable[Any]) -> None:
    unpacked = 0
    for found in objects:
        if isinstance(found, pikepdf.Stream):
            check_names(found.stream_dict.unparse(resolved=True))
            unpacked += _measure_stream(found, MAX_PDF_UNPACKED_BYTES - unpacked)
        elif isinstance(found, pikepdf.Object):  # a number or a boolean has no names
            check_names(found.unparse(resolved=True))


def check_names(spelled: bytes) -> None:
    """Check an object in the library's own spelling, which has no escapes in known names."""
    names = set(_NAME.findall(_STRING.sub(b" ", spelled)))
    for name in names & _FORBIDDEN.keys():
        raise Unsound(f"it contains {_FORBIDDEN[name]}")
    if b"/EF" in names and names & _FILE_SPECS:
        raise Unsound("it contains an embedded file")


def _measure_stream(stream: Any, left: int) -> int:
    """The unpacked size of a stream. Raises Unsound above `left`; the memory limit of the process is the last
    resort."""
    filters = _load_filters(stream)
    if any(name in _FLATE for name in filters[1:]) and (filters[0] in _FLATE or filters[-1] in _IMAGE_FILTERS):
        raise Unsound("it is compressed more than once")
    if not filters or (filters[0] not in _FLATE and filters[-1] in _IMAGE_FILTERS):
        return 0
    size = _inflate(stream.read_raw_bytes(), left) if filters[0] in _FLATE else len(stream.read_bytes())
    if size > left:
        raise Unsound(f"it unpacks to more than {MAX_PDF_UNPACKED_BYTES} bytes")
    return size


def _load_filters(stream: Any) -> list[str]:
    named = stream.stream_dict.get("/Filter")
    if named is None:
        return []
    return [str(name) for name in named] if isinstance(named, pikepdf.Array) else [str(named)]


def _inflate(packed: bytes, left: int) -> int:
    inflater, size, waiting = zlib.decompressobj(), 0, packed
    while waiting and not inflater.eof and size <= left:
        size += len(inflater.decompress(waiting, _CHUNK_BYTES))
        waiting = inflater.unconsumed_tail
    return size

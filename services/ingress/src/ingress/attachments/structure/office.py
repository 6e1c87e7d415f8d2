"""OOXML: Word, PowerPoint and Excel files without macros, programs, or anything fetched from elsewhere. ZIP is accepted
in the one form that all readers interpret alike: the directory matches the entries."""

import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import cast
from xml.etree.ElementTree import Element

import defusedxml.ElementTree
from defusedxml import DefusedXmlException
from PIL import Image

from ingress.attachments.structure.images import check_pixels
from ingress.attachments.structure.limits import (
    MAX_ENTRIES,
    MAX_RATIO,
    MAX_UNPACKED_BYTES,
    RATIO_FROM_BYTES,
    Form,
    Unsound,
)

_END = struct.Struct("<4s4H2IH")
_LOCAL = struct.Struct("<4s5H3I2H")
_MAX_COMMENT_BYTES = 65_535
_MAX_DIRECTORY_BYTES = MAX_ENTRIES * 1024
_MAX_DESCRIPTOR_BYTES = 24
_CHUNK_BYTES = 2**18
_ENCRYPTED, _HAS_DESCRIPTOR = 0x0001, 0x0008
_TYPES = frozenset({0, stat.S_IFREG, stat.S_IFDIR})

_TYPES_NAME = "[Content_Types].xml"
_OFFICE = "application/vnd.openxmlformats-officedocument."
_MAIN: Mapping[str, str] = {
    "docx": f"{_OFFICE}wordprocessingml.document.main+xml",
    "pptx": f"{_OFFICE}presentationml.presentation.main+xml",
    "xlsx": f"{_OFFICE}spreadsheetml.sheet.main+xml",
}
_FORBIDDEN_TYPES = re.compile(r"macro|vba|oleobject|activex|dialogsheet|vnd\.ms-package|officedocument\.package", re.I)
_FORBIDDEN_NAMES = re.compile(
    r"(^|/)(vba(project|data)[^/]*|(macrosheets|dialogsheets|embeddings|activex|externallinks)/.*)$", re.I
)
_EMBEDDED = re.compile(r"(^|/)embeddings/[^/]+\.(docx|pptx|xlsx)$", re.I)
"""The workbook of a chart, and other Office files inside one. They are checked like any other Office file."""
_MAX_EMBEDDED_BYTES = 10_000_000
_FORBIDDEN_RELATIONS = re.compile(
    r"/(oleObject|vbaProject|control|activeX\w*|xlMacrosheet|xlIntlMacrosheet|externalLink(Path)?|"
    r"frame|subDocument|aFChunk|wordVbaData)$",
    re.I,
)
_LINK = re.compile(r"(https?|mailto|tel):|(?![a-z][a-z0-9+.-]*:|\\\\|//|/\\|\\/)", re.I)
"""Includes relative paths, but not local or network paths, which start with a scheme or two slashes."""
_LOCAL_TEMPLATE = re.compile(r"(file:///)?[a-z]:[\\/](?![\\/])|[^\\/:]+$", re.I)
"""Word records which local template a document was made with. One on a server would be fetched."""
_MAX_XML_BYTES = 4 * 2**20
"""Limit for a part that is parsed as a whole: the types and the relations."""
_CARRIED = (
    b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"Rar!\x1a\x07", b"7z\xbc\xaf\x27\x1c",
    b"\x1f\x8b\x08", b"MZ", b"\x7fELF", b"%PDF-",
)  # fmt: skip
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")
_MAX_PICTURE_BYTES = 25_000_000
_PICTURE_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_XML_NAMES = (".xml", ".vml", ".rels", ".svg")
_PLAIN_DOCTYPE = re.compile(rb"<!DOCTYPE[^\[>]*>")
"""One without declarations, as drawing programs write at the beginning of an SVG."""
_DECLARATIONS = tuple(
    word.encode(encoding) for word in ("<!DOCTYPE", "<!ENTITY") for encoding in ("ascii", "utf-16-le", "utf-16-be")
)
_KEPT_BYTES = max(map(len, _DECLARATIONS)) - 1
_MARK, _BLANKS, _START_BYTES = b"\xef\xbb\xbf", b" \t\r\n", 4096
_ENCODING = re.compile(rb"""<\?xml[^>]*\bencoding\s*=\s*["']([^"']*)["']""")
_ENCODINGS = frozenset({b"utf-8", b"utf-16", b"us-ascii"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry and the offsets of its packed bytes; `end` is exclusive."""

    name: str
    method: int
    crc: int
    size: int
    start: int
    end: int
    at: int


def load_entries(data: bytes) -> tuple[Entry, ...]:
    """Load all entries from the directory and compare them with their local headers. Raises Unsound."""
    infos, directory_at = _load_directory(data)
    if sum(info.file_size for info in infos) > MAX_UNPACKED_BYTES:
        raise Unsound(f"it unpacks to more than {MAX_UNPACKED_BYTES} bytes")
    _check_names(infos)
    entries = tuple(_locate(data, info) for info in infos)
    _check_places(entries, directory_at)
    return entries


def unpack(data: bytes, entry: Entry) -> Iterator[bytes]:
    """Yield the bytes of an entry in pieces of 256 KiB. Raises Unsound unless size and checksum match the directory."""
    size = crc = 0
    for piece in _inflate(data, entry):
        size += len(piece)
        if size > entry.size:
            break
        crc = zlib.crc32(piece, crc)
        yield piece
    if size != entry.size or crc != entry.crc:
        raise Unsound(f"its entry {entry.name!r} does not match its directory")


def _load_directory(data: bytes) -> tuple[Sequence[zipfile.ZipInfo], int]:
    at = data.rfind(b"PK\x05\x06", max(0, len(data) - _END.size - _MAX_COMMENT_BYTES))
    if at < 0 or at + _END.size > len(data):
        raise Unsound("it is truncated")
    _, disk, first_disk, here, count, size, offset, comment = _END.unpack_from(data, at)
    if disk or first_disk or here != count or at + _END.size + comment != len(data):
        raise Unsound("the end record of its directory is malformed")
    if count > MAX_ENTRIES or size > _MAX_DIRECTORY_BYTES:
        raise Unsound(f"it contains more than {MAX_ENTRIES} entries")
    if offset + size != at or data.count(b"PK\x05\x06", offset) > 1:
        raise Unsound("its directory is not at the recorded offset")
    try:
        infos = zipfile.ZipFile(BytesIO(data)).infolist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise Unsound("its directory can't be read") from error
    if len(infos) != count:
        raise Unsound("its directory does not have the recorded number of entries")
    return infos, offset


def _check_names(infos: Sequence[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for info in infos:
        name = info.filename
        parts = name.removesuffix("/").split("/")
        if info.orig_filename != name or "\\" in name or ":" in name or not all(map(_is_plain, parts)):
            raise Unsound("the name of an entry points outside the archive")
        if stat.S_IFMT(info.external_attr >> 16) not in _TYPES:
            raise Unsound(f"its entry {name!r} is not a file")
        if name.casefold() in seen:
            raise Unsound(f"it has two entries {name!r}")
        seen.add(name.casefold())


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and part.isprintable()


def _locate(data: bytes, info: zipfile.ZipInfo) -> Entry:
    if info.flag_bits & _ENCRYPTED:
        raise Unsound("it is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unsound(f"its entry {info.filename!r} uses an unsupported compression method")
    if info.file_size > RATIO_FROM_BYTES and info.file_size > MAX_RATIO * info.compress_size:
        raise Unsound(f"its entry {info.filename!r} unpacks to more than {MAX_RATIO} times its size")
    at = info.header_offset
    if at < 0 or at + _LOCAL.size > len(data):
        raise Unsound("its directory does not have the recorded number of entries")
    magic, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL.unpack_from(data, at)
    start = at + _LOCAL.size + name_bytes + extra_bytes
    name = data[at + _LOCAL.size : at + _LOCAL.size + name_bytes]
    announced = (info.CRC, info.compress_size, info.file_size)
    later = flags & _HAS_DESCRIPTOR and (crc, packed, size) == (0, 0, 0)
    same = (
        magic == b"PK\x03\x04"
        and method == info.compress_type
        and flags & ~_HAS_DESCRIPTOR == info.flag_bits & ~_HAS_DESCRIPTOR
        and name.decode("utf-8" if flags & 0x800 else "cp437", errors="replace") == info.filename
        and (later or (crc, packed, size) == announced)
    )
    if not same or start + info.compress_size > len(data):
        raise Unsound(f"its entry {info.filename!r} does not match its directory")
    return Entry(info.filename, method, info.CRC, info.file_size, start, start + info.compress_size, at)


def _check_places(entries: Sequence[Entry], directory_at: int) -> None:
    behind = 0
    for entry in sorted(entries, key=lambda entry: entry.at):
        if entry.at < behind:
            raise Unsound("its entries overlap")
        if entry.at > behind + _MAX_DESCRIPTOR_BYTES or (behind == 0 and entry.at):
            raise Unsound("there is data between its entries")
        behind = entry.end
    if not behind <= directory_at <= behind + _MAX_DESCRIPTOR_BYTES:
        raise Unsound("there is data between its entries and their directory")


def _inflate(data: bytes, entry: Entry) -> Iterator[bytes]:
    packed = memoryview(data)[entry.start : entry.end]
    if entry.method == zipfile.ZIP_STORED:
        for start in range(0, len(packed), _CHUNK_BYTES):
            yield bytes(packed[start : start + _CHUNK_BYTES])
        return
    inflater, at, waiting = zlib.decompressobj(-zlib.MAX_WBITS), 0, b""
    while not inflater.eof:
        if not waiting:
            waiting = bytes(packed[at : at + _CHUNK_BYTES])
            at += len(waiting)
        piece = inflater.decompress(waiting, _CHUNK_BYTES)
        waiting = inflater.unconsumed_tail
        if not (piece or waiting or at < len(packed)):
            break
        yield piece
    if not inflater.eof or inflater.unused_data or at < len(packed):
        raise Unsound(f"its entry {entry.name!r} does not match its directory")


def check_office(form: Form, data: bytes, *, embedded: bool = False) -> None:
    """Raises Unsound. Unpacks every entry, in pieces, so that nothing is trusted unseen.

    `embedded` is for a file inside another one, which can't contain such files itself.
    """
    entries = load_entries(data)
    for entry in entries:
        if _FORBIDDEN_NAMES.search(entry.name) and (embedded or not _EMBEDDED.search(entry.name)):
            raise Unsound(f"it contains macros or an embedded file ({entry.name!r})")
    wanted = {entry.name: entry for entry in entries}
    if _TYPES_NAME not in wanted:
        raise Unsound("it is a ZIP archive but not an Office file")
    types = _read_xml(data, wanted[_TYPES_NAME])
    check_types(form, types)
    is_xml = _XmlParts(types)
    for entry in entries:
        if entry.name == _TYPES_NAME:
            continue
        if entry.name.lower().endswith(".rels"):
            check_relations(_read_xml(data, entry))
        elif found := _EMBEDDED.search(entry.name):
            _check_embedded(data, entry, found[2].lower())
        else:
            _check_part(data, entry, is_xml=is_xml.has(entry.name))


class _XmlParts:
    """The parts that programs read as XML, by their declared types and by their names."""

    def __init__(self, types: Element) -> None:
        named = [(element, element.get("ContentType", "").lower().endswith("xml")) for element in types.iter()]
        self._parts = {element.get("PartName", "").lstrip("/").lower() for element, is_xml in named if is_xml}
        self._extensions = {
            f".{extension.lower()}" for e, is_xml in named if is_xml and (extension := e.get("Extension"))
        }

    def has(self, name: str) -> bool:
        lower = name.lower()
        return lower in self._parts or lower.endswith((*_XML_NAMES, *self._extensions))


def _check_embedded(data: bytes, entry: Entry, extension: str) -> None:
    if entry.size > _MAX_EMBEDDED_BYTES:
        raise Unsound(f"its entry {entry.name!r} is larger than {_MAX_EMBEDDED_BYTES} bytes")
    try:
        check_office(cast(Form, extension), b"".join(unpack(data, entry)), embedded=True)
    except Unsound as fault:
        raise Unsound(f"its entry {entry.name!r} is rejected: {fault}") from fault


def check_types(form: Form, types: Element) -> None:
    """Check the types part: the file matches its extension and has no macros or objects."""
    named = [element.get("ContentType", "") for element in types.iter()]
    for name in named:
        if _FORBIDDEN_TYPES.search(name):
            raise Unsound(f"it contains macros or an object ({name})")
    if [name for name in named if name.endswith(".main+xml")] != [_MAIN[form]]:
        raise Unsound(f"its content is not a valid .{form} file")


def check_relations(relations: Element) -> None:
    """Reject everything outside the file that would be fetched or run; plain links are allowed."""
    for relation in relations.iter():
        kind, target = relation.get("Type", ""), relation.get("Target", "")
        if kind.endswith("/attachedTemplate") and _LOCAL_TEMPLATE.match(target):
            continue
        if kind.endswith("/attachedTemplate") or (kind.endswith("/package") and not _EMBEDDED.search(target)):
            raise Unsound(f"it contains a relationship of the type {kind.rpartition('/')[2]}")
        if _FORBIDDEN_RELATIONS.search(kind):
            raise Unsound(f"it contains a relationship of the type {kind.rpartition('/')[2]}")
        if relation.get("TargetMode", "Internal").lower() == "internal":
            continue
        if not (kind.endswith("/hyperlink") and _LINK.match(target)):
            raise Unsound("it refers to something outside the file that is not a plain link")


def _read_xml(data: bytes, entry: Entry) -> Element:
    if entry.size > _MAX_XML_BYTES:
        raise Unsound(f"its entry {entry.name!r} is larger than {_MAX_XML_BYTES} bytes")
    text = b"".join(unpack(data, entry))
    _check_xml_start(entry, text)
    try:
        return defusedxml.ElementTree.fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise Unsound(f"its entry {entry.name!r} declares a DTD or entities") from error
    except (defusedxml.ElementTree.ParseError, ValueError) as error:
        raise Unsound(f"its entry {entry.name!r} is not XML") from error


def _check_part(data: bytes, entry: Entry, *, is_xml: bool) -> None:
    """Check a part without parsing it, which would be slow: reject what would exploit parsers."""
    kept, picture = b"", bytearray()
    is_picture = False
    for number, piece in enumerate(unpack(data, entry)):
        if number == 0:
            if piece.startswith(_CARRIED):
                raise Unsound(f"it contains another file ({entry.name!r})")
            is_picture = piece.startswith(_PICTURES) and entry.size <= _MAX_PICTURE_BYTES
            is_xml = is_xml or piece[:_START_BYTES].removeprefix(_MARK).lstrip(_BLANKS).startswith(b"<")
            if is_xml:
                _check_xml_start(entry, piece)
        if is_picture:
            picture += piece
        seen = kept + piece
        if number == 0 and entry.name.lower().endswith(".svg"):
            seen = _PLAIN_DOCTYPE.sub(b"", seen, count=1)
        # A printer's settings and a picture's notes can quote XML, which no program parses there.
        if is_xml and any(word in seen for word in _DECLARATIONS):
            raise Unsound(f"its entry {entry.name!r} declares a DTD or entities")
        kept = seen[-_KEPT_BYTES:]
    if picture:
        _check_picture(entry, bytes(picture))


def _check_picture(entry: Entry, data: bytes) -> None:
    """Check only the picture's size: an antivirus that unpacks the file may decode it, and an Office program will."""
    try:
        with Image.open(io.BytesIO(data), formats=_PICTURE_FORMATS) as image:
            check_pixels(image.width, image.height)
    except Unsound as fault:
        raise Unsound(f"its entry {entry.name!r} is rejected: {fault}") from fault
    except (OSError, SyntaxError, ValueError):
        return  # not a picture that a decoder would accept


def _check_xml_start(entry: Entry, text: bytes) -> None:
    start = text.removeprefix(b"\xef\xbb\xbf")[:256]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    named = _ENCODING.match(start.lstrip())
    if not start.lstrip().startswith(b"<") or b"\0" in start or (named and named[1].lower() not in _ENCODINGS):
        raise Unsound(f"its entry {entry.name!r} is not in UTF-8 or UTF-16")

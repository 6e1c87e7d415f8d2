"""OOXML: Word, PowerPoint and Excel files without macros, carried files, or anything fetched from elsewhere."""

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element

import defusedxml.ElementTree
from defusedxml import DefusedXmlException

from ingress.attachments.structure.archive import Entry, load_entries, unpack
from ingress.attachments.structure.limits import Form, Unsound

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
_FORBIDDEN_RELATIONS = re.compile(
    r"/(oleObject|package|vbaProject|control|activeX\w*|xlMacrosheet|xlIntlMacrosheet|attachedTemplate|"
    r"externalLink(Path)?|frame|subDocument|aFChunk|wordVbaData)$",
    re.I,
)
_LINK = re.compile(r"(https?|mailto|tel):", re.I)
_MAX_XML_BYTES = 4 * 2**20
"""Of a part that is read whole: the types and the relations."""
_CARRIED = (
    b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"Rar!\x1a\x07", b"7z\xbc\xaf\x27\x1c",
    b"\x1f\x8b\x08", b"MZ", b"\x7fELF", b"%PDF-",
)  # fmt: skip
_DECLARATIONS = tuple(
    word.encode(encoding) for word in ("<!DOCTYPE", "<!ENTITY") for encoding in ("ascii", "utf-16-le", "utf-16-be")
)
_KEPT_BYTES = max(map(len, _DECLARATIONS)) - 1
_ENCODING = re.compile(rb"""<\?xml[^>]*\bencoding\s*=\s*["']([^"']*)["']""")
_ENCODINGS = frozenset({b"utf-8", b"utf-16", b"us-ascii"})


def check_office(form: Form, data: bytes) -> None:
    """Raises Unsound. Every entry is unpacked, in pieces, so nothing is believed that was not seen."""
    entries = load_entries(data)
    for entry in entries:
        if _FORBIDDEN_NAMES.search(entry.name):
            raise Unsound(f"it holds macros or a carried file ({entry.name!r})")
    wanted = {entry.name: entry for entry in entries}
    if _TYPES_NAME not in wanted:
        raise Unsound("it is a ZIP archive, and no Office file")
    for entry in entries:
        if entry.name == _TYPES_NAME:
            check_types(form, _read_xml(data, entry))
        elif entry.name.lower().endswith(".rels"):
            check_relations(_read_xml(data, entry))
        else:
            _check_part(data, entry)


def check_types(form: Form, types: Element) -> None:
    """The part that says what the file is: of its extension, and without macros and objects."""
    named = [element.get("ContentType", "") for element in types.iter()]
    for name in named:
        if _FORBIDDEN_TYPES.search(name):
            raise Unsound(f"it holds macros or an object ({name})")
    if [name for name in named if name.endswith(".main+xml")] != [_MAIN[form]]:
        raise Unsound(f"its content is not that of a .{form} file")


def check_relations(relations: Element) -> None:
    """Only plain links lead out of the file; everything else that would be fetched or run is refused."""
    for relation in relations.iter():
        kind = relation.get("Type", "")
        if _FORBIDDEN_RELATIONS.search(kind):
            raise Unsound(f"it holds a relation of the kind {kind.rpartition('/')[2]}")
        if relation.get("TargetMode", "Internal").lower() == "internal":
            continue
        if not (kind.endswith("/hyperlink") and _LINK.match(relation.get("Target", ""))):
            raise Unsound("it refers to something outside that is no plain link")


def _read_xml(data: bytes, entry: Entry) -> Element:
    if entry.size > _MAX_XML_BYTES:
        raise Unsound(f"its entry {entry.name!r} has more than {_MAX_XML_BYTES} bytes")
    text = b"".join(unpack(data, entry))
    _check_xml_start(entry, text)
    try:
        return defusedxml.ElementTree.fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise Unsound(f"its entry {entry.name!r} declares a DTD or entities") from error
    except (defusedxml.ElementTree.ParseError, ValueError) as error:
        raise Unsound(f"its entry {entry.name!r} is no XML") from error


def _check_part(data: bytes, entry: Entry) -> None:
    """Parts are not parsed, which would take long; but what parsers would fall for must not be in them."""
    is_xml = entry.name.lower().endswith((".xml", ".vml"))
    kept = b""
    for number, piece in enumerate(unpack(data, entry)):
        if number == 0 and piece.startswith(_CARRIED):
            raise Unsound(f"it holds another file ({entry.name!r})")
        if number == 0 and (is_xml or piece.startswith(b"<")):
            _check_xml_start(entry, piece)
        seen = kept + piece
        if any(word in seen for word in _DECLARATIONS):
            raise Unsound(f"its entry {entry.name!r} declares a DTD or entities")
        kept = seen[-_KEPT_BYTES:]


def _check_xml_start(entry: Entry, text: bytes) -> None:
    start = text.removeprefix(b"\xef\xbb\xbf")[:256]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    named = _ENCODING.match(start.lstrip())
    if not start.lstrip().startswith(b"<") or b"\0" in start or (named and named[1].lower() not in _ENCODINGS):
        raise Unsound(f"its entry {entry.name!r} is not in UTF-8 or UTF-16")

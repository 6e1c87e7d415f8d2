"""Word, PowerPoint and Excel files, sound ones and such as are refused."""

from collections.abc import Sequence

from uploads.zips import AS_IT_IS, End, Member, build_zip

_OFFICE = "application/vnd.openxmlformats-officedocument."
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MAIN = {
    "docx": ("word/document.xml", f"{_OFFICE}wordprocessingml.document.main+xml"),
    "pptx": ("ppt/presentation.xml", f"{_OFFICE}presentationml.presentation.main+xml"),
    "xlsx": ("xl/workbook.xml", f"{_OFFICE}spreadsheetml.sheet.main+xml"),
}
XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def relation(kind: str, target: str, *, external: bool = False, number: int = 1) -> str:
    mode = ' TargetMode="External"' if external else ""
    return f'<Relationship Id="rId{number}" Type="{_RELATIONS}/{kind}" Target="{target}"{mode}/>'


def relations(*found: str) -> bytes:
    namespace = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'{XML}<Relationships xmlns="{namespace}">{"".join(found)}</Relationships>'.encode()


def content_types(main: str, main_type: str, *more: str) -> bytes:
    namespace = "http://schemas.openxmlformats.org/package/2006/content-types"
    defaults = '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    override = f'<Override PartName="/{main}" ContentType="{main_type}"/>'
    return f'{XML}<Types xmlns="{namespace}">{defaults}{override}{"".join(more)}</Types>'.encode()


def override(part: str, content_type: str) -> str:
    return f'<Override PartName="/{part}" ContentType="{content_type}"/>'


def members(
    form: str = "docx", *, main_type: str = "", types: Sequence[str] = (), links: Sequence[str] = (), body: bytes = b""
) -> list[Member]:
    """The entries of a small file of this form."""
    main, its_type = MAIN[form]
    folder, _, name = main.rpartition("/")
    return [
        Member("[Content_Types].xml", content_types(main, main_type or its_type, *types)),
        Member("_rels/.rels", relations(relation("officeDocument", main))),
        Member(f"{folder}/_rels/{name}.rels", relations(*links)),
        Member(main, body or f"{XML}<document><p>words</p></document>".encode()),
    ]


def office(form: str = "docx", *more: Member, end: End = AS_IT_IS, **changes: object) -> bytes:
    """A file of this form with more entries; `changes` are those of `members`."""
    return build_zip([*members(form, **changes), *more], end)  # type: ignore[arg-type]

"""Office files with macros, objects, carried files, outside references or declarations are refused."""

import pytest
from uploads.images import image, png_chunk, png_of_zeros
from uploads.office import MAIN, XML, office, override, relation
from uploads.zips import Member, bomb, build_zip

from ingress.attachments.structure.limits import Form, Unsound
from ingress.attachments.structure.office import check_office

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(64)
LINK = relation("hyperlink", "https://example.org/a?b=1", external=True)
DEEP = office("xlsx", Member("xl/embeddings/b.docx", office("docx")))
LAUGHS = '<!DOCTYPE a [<!ENTITY x "ha">' + "".join(f'<!ENTITY x{n} "&x;&x;">' for n in range(9)) + "]><a>&x8;</a>"
XXE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'


@pytest.mark.parametrize("form", ["docx", "pptx", "xlsx"])
def test_a_file_of_each_kind_is_sound(form: Form) -> None:
    check_office(form, office(form))
    check_office(form, office(form, links=[LINK, relation("image", "media/a.png", number=2)]))
    check_office(form, office(form, body=XML.encode().decode().encode("utf-16") if form == "docx" else b""))


MAC_PRINTER = b"\0\0\x12<?xml version='1.0'?>\n<!DOCTYPE plist PUBLIC '-//Apple//DTD PLIST 1.0//EN' 'x.dtd'>\n<plist/>"
SVG = b"<?xml version='1.0'?><!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN' 'svg11.dtd'><svg/>"
LOCAL_TEMPLATE = "file:///C:\\Users\\Ann\\Templates\\Report.dotm"


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("pptx", office("pptx", Member("ppt/printerSettings/printerSettings1.bin", MAC_PRINTER))),
        ("pptx", office("pptx", Member("ppt/embeddings/Microsoft_Excel_Sheet1.xlsx", office("xlsx"), method=0))),
        ("pptx", office("pptx", links=[relation("package", "../embeddings/Microsoft_Excel_Sheet1.xlsx")])),
        ("docx", office("docx", Member("word/media/image1.svg", SVG))),
        (
            "docx",
            office("docx", Member("word/media/image1.png", image("png")[:33] + png_chunk(b"tEXt", b"a\0<!DOCTYPE a>"))),
        ),
        ("docx", office("docx", links=[relation("attachedTemplate", LOCAL_TEMPLATE, external=True)])),
        ("docx", office("docx", links=[relation("attachedTemplate", "Normal.dotm", external=True)])),
        ("docx", office("docx", links=[relation("hyperlink", "../other/report%202.docx", external=True)])),
    ],
)
def test_what_office_programs_really_write_is_sound(form: Form, data: bytes) -> None:
    check_office(form, data)


@pytest.mark.parametrize(
    ("form", "data", "fault"),
    [
        ("docx", office("docx", main_type="application/vnd.ms-word.document.macroEnabled.main+xml"), "macros"),
        ("xlsx", office("xlsx", main_type="application/vnd.ms-excel.sheet.macroEnabled.main+xml"), "macros"),
        ("docx", office("docx", Member("word/vbaProject.bin", b"x")), "macros"),
        ("docx", office("docx", types=[override("a.bin", "application/vnd.ms-office.vbaProject")]), "macros"),
        ("xlsx", office("xlsx", types=[override("m.xml", "application/vnd.ms-excel.macrosheet+xml")]), "macros"),
        ("xlsx", office("xlsx", Member("xl/macrosheets/sheet1.xml", b"<a/>")), "macros"),
        ("xlsx", office("pptx"), "not a valid"),
        ("docx", build_zip([Member("a.txt", b"words")]), "not an Office file"),
        ("docx", office("docx", Member("word/embeddings/oleObject1.bin", OLE)), "embedded file"),
        ("docx", office("docx", Member("word/media/image1.png", OLE)), "another file"),
        ("docx", office("docx", Member("word/media/a.bin", build_zip([Member("x")]))), "another file"),
        ("docx", office("docx", Member("word/media/a.bin", b"MZ\x90")), "another file"),
        ("docx", office("docx", links=[relation("attachedTemplate", "http://x/a.dotm", external=True)]), "relation"),
        ("docx", office("docx", links=[relation("oleObject", "file:///x", external=True)]), "relation"),
        ("docx", office("docx", links=[relation("image", "http://x/a.png", external=True)]), "outside"),
        ("docx", office("docx", links=[relation("hyperlink", "file:///etc/passwd", external=True)]), "outside"),
        ("docx", office("docx", links=[relation("hyperlink", "javascript:alert(1)", external=True)]), "outside"),
        ("docx", office("docx", links=[relation("attachedTemplate", "\\\\evil\\a.dotm", external=True)]), "relation"),
        ("docx", office("docx", links=[relation("attachedTemplate", "file://evil/a.dotm", external=True)]), "relation"),
        (
            "docx",
            office("docx", links=[relation("attachedTemplate", "file:////evil/a.dotm", external=True)]),
            "relation",
        ),
        ("docx", office("docx", links=[relation("hyperlink", "\\\\evil\\share\\a.docx", external=True)]), "outside"),
        ("docx", office("docx", links=[relation("package", "../media/a.bin")]), "relation"),
        (
            "pptx",
            office("pptx", Member("ppt/embeddings/a.xlsx", office("xlsx", Member("xl/vbaProject.bin")))),
            "macros",
        ),
        ("pptx", office("pptx", Member("ppt/embeddings/a.xlsx", build_zip([Member("x")]))), "not an Office file"),
        ("pptx", office("pptx", Member("ppt/embeddings/a.xlsx", DEEP)), "embedded file"),
        ("docx", office("docx", Member("word/media/a.png", png_of_zeros(20_000, 20_000))), "pixels"),
        ("docx", office("docx", Member("word/media/a.svg", LAUGHS.encode())), "DTD"),
        ("docx", office("docx", Member("word/a.bin", b" <!DOCTYPE a [<!ENTITY x 'x'>]><a/>")), "DTD"),
        (
            "docx",
            office("docx", Member("word/a.dat", b"x" + XXE.encode()), types=[override("word/a.dat", "a/b+xml")]),
            "UTF-8|DTD",
        ),
        ("docx", office("docx", body=XXE.encode()), "DTD"),
        ("docx", office("docx", body=LAUGHS.encode()), "DTD"),
        ("docx", office("docx", body=("\ufeff" + XXE).encode("utf-16-le")), "DTD"),
        ("docx", office("docx", body=b"<?xml version='1.0' encoding='utf-7'?><a/>"), "UTF-8"),
        ("docx", office("docx", body=b" " * 262_140 + b"<!DOCTYPE a>"), "DTD|UTF-8"),
        ("docx", office("docx", Member("word/a.xml", b"<a>" + b"x" * 262_135 + b"<!DOCTYPE a>")), "DTD"),
        ("docx", office("docx", bomb("word/media/a.bin", 50_000_000)), "200 times"),
    ],
)
def test_a_file_is_refused_for_what_it_holds(form: Form, data: bytes, fault: str) -> None:
    with pytest.raises(Unsound, match=fault):
        check_office(form, data)


@pytest.mark.parametrize("text", [XXE, LAUGHS, "no xml", ""])
def test_declarations_in_the_parts_that_are_parsed_are_refused(text: str) -> None:
    types, *rest = [Member("[Content_Types].xml", text.encode()), Member(MAIN["docx"][0], b"<a/>")]

    with pytest.raises(Unsound):
        check_office("docx", build_zip([types, *rest]))

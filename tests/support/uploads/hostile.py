"""Files that are never accepted: their names, their bytes and the status of the refusal."""

import gzip

from uploads.images import gif_and_script, image, png_of, png_of_zeros
from uploads.office import office, override, relation
from uploads.pdfs import encrypted_pdf, flate_zeros, object_stream_bomb, pdf, stream
from uploads.zips import End, Member, bomb, build_zip

A, OLE = Member("a.xml", b"<a/>"), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
WORD_MACROS = "application/vnd.ms-word.document.macroEnabled.main+xml"
SHEET_MACROS = "application/vnd.ms-excel.sheet.macroEnabled.main+xml"
XXE = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
LAUGHS = b'<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;">]><a>&y;</a>'
BAD_UPLOADS: dict[str, tuple[str, bytes, int]] = {
    "gif and program": ("a.gif", gif_and_script(), 422),
    "gif with a tail": ("a.gif", image("gif") + b"=1;alert(1)", 422),
    "pdf and zip": ("a.pdf", pdf() + build_zip([A]), 422),
    "png and zip": ("a.png", image("png") + build_zip([A]), 422),
    "generic zip": ("a.zip", build_zip([A]), 415),
    "zip as docx": ("a.docx", build_zip([A]), 422),
    "docx as xlsx": ("a.xlsx", office("docx"), 422),
    "docx as png": ("a.png", office("docx"), 415),
    "docm": ("a.docm", office("docx", main_type=WORD_MACROS), 415),
    "docm renamed": ("a.docx", office("docx", main_type=WORD_MACROS), 422),
    "xlsm": ("a.xlsm", office("xlsx", main_type=SHEET_MACROS), 415),
    "xlsm renamed": ("a.xlsx", office("xlsx", main_type=SHEET_MACROS), 422),
    "macros": ("a.docx", office("docx", Member("word/vbaProject.bin", b"x")), 422),
    "xlm": ("a.xlsx", office("xlsx", types=[override("m.xml", "application/vnd.ms-excel.macrosheet+xml")]), 422),
    "ole": ("a.docx", office("docx", Member("word/embeddings/a.bin", OLE)), 422),
    "old office": ("a.docx", OLE + bytes(600), 415),
    "encrypted office": ("a.docx", OLE + bytes(600) + "EncryptedPackage".encode("utf-16-le"), 422),
    "outside": ("a.docx", office(links=[relation("image", "http://x/a.png", external=True)]), 422),
    "pdf with a script": ("a.pdf", pdf(catalog=b"/OpenAction<</S/JavaScript/JS(1)>>"), 422),
    "pdf that starts": ("a.pdf", pdf(catalog=b"/OpenAction<</S/Launch/F(a)>>"), 422),
    "pdf that carries": ("a.pdf", pdf(stream(b"x", b"/Type/EmbeddedFile")), 422),
    "pdf bomb": ("a.pdf", pdf(flate_zeros(121 * 2**20)), 422),
    "object stream bomb": ("a.pdf", object_stream_bomb(100 * 2**20), 422),
    "501 pages": ("a.pdf", pdf(pages=501), 422),
    "encrypted pdf": ("a.pdf", encrypted_pdf(), 422),
    "pdf cut off": ("a.pdf", pdf()[:-40], 422),
    "overlap": ("a.docx", office("docx", A, Member("b.xml", A.data, local_name="a.xml", at=0)), 422),
    "nested": ("a.docx", office("docx", Member("word/a.bin", build_zip([A]))), 422),
    "ratio": ("a.docx", office("docx", bomb("word/a.bin", 100_000_000)), 422),
    "false directory": ("a.docx", office("docx", end=End(count=1)), 422),
    "100,000 members": ("a.docx", build_zip([Member(f"{n}", method=0) for n in range(100_000)], End(count=9)), 422),
    "slip": ("a.docx", office("docx", Member("../../etc/cron.d/x", b"x")), 422),
    "symlink": ("a.docx", office("docx", Member("word/a", b"/etc/passwd", mode=0o120777)), 422),
    "two of one name": ("a.docx", office("docx", A, A), 422),
    "60k png": ("a.png", png_of(60_000, 60_000), 422),
    "picture bomb": ("a.png", png_of_zeros(20_000, 20_000), 422),
    "picture bomb in a docx": ("a.docx", office("docx", Member("word/media/a.png", png_of_zeros(20_000, 20_000))), 422),
    "jpeg and zip": ("a.jpg", image("jpeg") + build_zip([A]), 422),
    "jpeg and script": ("a.jpg", image("jpeg") + b"\n<script>alert(1)</script>", 422),
    "page as pdf": ("a.pdf", b"<html><script>1</script></html>" + pdf(), 422),
    "script in a damaged pdf": (
        "a.pdf",
        pdf(catalog=b"/OpenAction<</S/JavaScript/JS(1)>>").replace(b"startxref\n", b"startxref\n9"),
        422,
    ),
    "macros in an embedded workbook": (
        "a.pptx",
        office("pptx", Member("ppt/embeddings/a.xlsx", office("xlsx", Member("xl/vbaProject.bin", b"x")))),
        422,
    ),
    "program as text": ("a.txt", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 9, 422),
    "program": ("a.bin", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 9, 415),
    "packed as text": ("a.txt", gzip.compress(bytes(range(256)) * 9), 415),
    "50k png": ("a.png", png_of(50_000, 50_000), 422),
    "rtf as text": ("a.txt", b"{\\rtf1\\ansi words}", 415),
    "xxe": ("a.docx", office("docx", body=XXE), 422),
    "billion laughs": ("a.docx", office("docx", Member("word/a.xml", LAUGHS)), 422),
    "empty": ("a.docx", b"", 422),
}

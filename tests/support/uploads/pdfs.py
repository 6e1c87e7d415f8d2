"""PDFs with exact cross-references, sound ones and such as are refused."""

import zlib
from collections.abc import Sequence
from io import BytesIO

import pikepdf
import pypdf
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def build_pdf(objects: Sequence[bytes], *, trailer: bytes = b"") -> bytes:
    """Objects 1, 2, 3 ... as they are; the first is the catalog."""
    out, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<</Size %d/Root 1 0 R%b>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start)
    return bytes(out)


def pdf(*more: bytes, pages: int = 1, catalog: bytes = b"", page: bytes = b"") -> bytes:
    """A document of empty pages; `catalog` and `page` are more keys, `more` are the objects from 3 + pages on."""
    kids = b" ".join(b"%d 0 R" % (number + 3) for number in range(pages))
    tree = b"<</Type/Pages/Count %d/Kids[%b]/MediaBox[0 0 9 9]>>" % (pages, kids)
    leaf = b"<</Type/Page/Parent 2 0 R/Resources<<>>%b>>" % page
    return build_pdf([b"<</Type/Catalog/Pages 2 0 R%b>>" % catalog, tree, *[leaf] * pages, *more])


def pdf_of_texts(*texts: str, link: str = "", password: str = "") -> bytes:
    """A PDF with one text on each page, and a link on the first."""
    writer = pypdf.PdfWriter()
    font = DictionaryObject(
        {NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1"),
         NameObject("/BaseFont"): NameObject("/Helvetica")}
    )  # fmt: skip
    for text in texts:
        page = writer.add_blank_page(300, 300)
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        page[NameObject("/Contents")] = writer._add_object(content)  # pyright: ignore[reportPrivateUsage]
    if link:
        writer.add_uri(0, link, (0, 0, 100, 100))
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    written = BytesIO()
    writer.write(written)
    return written.getvalue()


def stream(data: bytes, keys: bytes = b"") -> bytes:
    return b"<</Length %d%b>>\nstream\n%b\nendstream" % (len(data), keys, data)


def flate_zeros(size: int) -> bytes:
    """A stream that unpacks to so many zero bytes."""
    packer, piece = zlib.compressobj(9), bytes(2**20)
    packed = b"".join(packer.compress(piece) for _ in range(size // 2**20)) + packer.flush()
    return stream(packed, b"/Filter/FlateDecode")


def object_stream_bomb(size: int) -> bytes:
    """Its catalog is in an object stream that unpacks to so many bytes."""
    packer, piece = zlib.compressobj(9), b" " * 2**20
    head = b"1 0 <</Type/Catalog/Pages 2 0 R>>"
    packed = packer.compress(head) + b"".join(packer.compress(piece) for _ in range(size // 2**20)) + packer.flush()
    out = bytearray(b"%PDF-1.7\n")
    places = {}
    for number, body in (
        (2, b"<</Type/Pages/Count 1/Kids[3 0 R]/MediaBox[0 0 9 9]>>"),
        (3, b"<</Type/Page/Parent 2 0 R>>"),
        (4, stream(packed, b"/Type/ObjStm/N 1/First 4/Filter/FlateDecode")),
    ):
        places[number] = len(out)
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    rows = [(0, 0, 255), (2, 4, 0), *((1, places[number], 0) for number in (2, 3, 4)), (1, start, 0)]
    table = b"".join(kind.to_bytes(1) + at.to_bytes(4) + last.to_bytes(1) for kind, at, last in rows)
    out += b"5 0 obj\n" + stream(table, b"/Type/XRef/Size 6/W[1 4 1]/Root 1 0 R") + b"\nendobj\n"
    return bytes(out) + b"startxref\n%d\n%%%%EOF\n" % start


def encrypted_pdf(*, user: str = "secret") -> bytes:
    with pikepdf.open(BytesIO(pdf())) as opened:
        out = BytesIO()
        opened.save(out, encryption=pikepdf.Encryption(user=user, owner="owner"))
    return out.getvalue()

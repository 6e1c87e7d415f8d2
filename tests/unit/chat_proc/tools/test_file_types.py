"""File types from bytes first, names second."""

import pytest

from chat_proc.attachments.policy import is_text
from chat_proc.tools.stored_files import sniff_mime

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20


@pytest.mark.parametrize(
    ("name", "data", "mime"),
    [
        ("chart.png", PNG, "image/png"),
        ("chart.csv", PNG, "image/png"),
        ("photo", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("a.gif", b"GIF89a..", "image/gif"),
        ("a.webp", b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        ("a.pdf", b"%PDF-1.7", "application/pdf"),
        ("a.xlsx", b"PK\x03\x04...", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("a.bin", b"PK\x03\x04...", "application/zip"),
        ("table.csv", b"a,b\n1,2\n", "text/csv"),
        ("TABLE.CSV", b"a,b\n", "text/csv"),
        ("a.md", "é".encode(), "text/markdown"),
        ("a.json", b"{}", "application/json"),
        ("a.png", b"not an image", "text/plain"),
        ("noname", b"text", "text/plain"),
        ("empty.csv", b"", "text/csv"),
        ("a.txt", b"a\x00b", "application/octet-stream"),
        ("a.txt", b"\xff\xfe\xfa", "application/octet-stream"),
        ("long.txt", b"x" * 4095 + "é".encode() + b"x" * 10, "text/plain"),
    ],
)
def test_a_produced_file_is_what_its_bytes_say(name: str, data: bytes, mime: str) -> None:
    assert sniff_mime(name, data) == mime


@pytest.mark.parametrize(("mime", "text"), [("text/csv", True), ("application/json", True), ("image/png", False)])
def test_texts_are_known(mime: str, text: bool) -> None:
    assert is_text(mime) is text

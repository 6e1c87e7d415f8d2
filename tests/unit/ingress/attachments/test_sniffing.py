"""Content, extension and declared type must agree."""

import struct
import zlib

import pytest

from ingress.attachments.sniffing import NotAcceptable, NotAccepted, Sniffer, decide_kind

SNIFFER = Sniffer()


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b"")
    )


JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xd9"
GIF = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00/\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
PDF = b"%PDF-1.4\n1 0 obj\n<</Type/Catalog>>\nendobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
ZIP = b"PK\x03\x04\x14\x00\x00\x00\x00\x00" + b"\x00" * 20 + b"PK\x05\x06" + b"\x00" * 18
EMPTY_ZIP = b"PK\x05\x06" + b"\x00" * 18


def decide(name: str, data: bytes, declared: str = "") -> str:
    return decide_kind(name, declared, SNIFFER.sniff(data), data).mime


@pytest.mark.parametrize(
    ("name", "data", "declared", "mime"),
    [
        ("a.csv", b"name,sum\na,1\nb,2\n", "text/csv", "text/csv"),
        ("a.csv", b"name,sum\na,1\n", "application/vnd.ms-excel", "text/csv"),
        ("a.csv", b"\xef\xbb\xbfname,sum\na,1\n", "", "text/csv"),
        ("a.txt", "grüße, 世界 \U0001f600".encode(), "text/plain", "text/plain"),
        ("a.md", b"# Title\n", "text/markdown", "text/markdown"),
        ("a.json", b'{"a": 1}', "application/json", "text/plain"),
        ("a.py", b"import os\nprint(1)\n", "text/x-python", "text/plain"),
        ("a.js", b"alert(1)\n", "text/javascript", "text/plain"),
        ("README", b"plain words\n", "", "text/plain"),
        ("README.md", b"<h1 align=center>Title</h1>\n<p>words</p>\n", "text/markdown", "text/markdown"),
        ("a.html", b"<html><script>alert(1)</script></html>", "text/html", "text/plain"),
        ("a.txt", b"<!DOCTYPE html><html><body>x</body></html>", "text/plain", "text/plain"),
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "image/svg+xml", "text/plain"),
        ("a.xml", b"<?xml version='1.0'?><a/>", "application/xml", "text/plain"),
        ("a.ts", b"export const a = 1;\n", "video/mp2t", "text/plain"),
        ("a.eml", b"From: a@example.org\nSubject: x\n\nwords\n", "message/rfc822", "text/plain"),
        *(
            (name, b"some words\n", "", "text/plain")
            for name in (
                "server.log.1",
                "notes.old",
                "report v1.00",
                "a.tsx",
                "a.bat",
                "Makefile",
                ".gitignore",
                "x.zzz",
            )
        ),
        ("a.csv", "Straße;Größe\n".encode("cp1252"), "", "text/csv"),
        ("a.csv", "a\tb\n".encode("utf-16"), "", "text/csv"),
        ("a.txt", "a b\n".encode("utf-16-le"), "", "text/plain"),
        ("a.png", png(), "image/png", "image/png"),
        ("a.PNG", png(), "application/octet-stream", "image/png"),
        ("a.jpg", JPEG, "image/jpeg", "image/jpeg"),
        ("a.jpeg", JPEG, "image/jpg", "image/jpeg"),
        ("a.gif", GIF, "image/gif", "image/gif"),
        ("a.webp", WEBP, "image/webp", "image/webp"),
        ("a.pdf", PDF, "application/pdf", "application/pdf"),
    ],
)
def test_accepted_types(name: str, data: bytes, declared: str, mime: str) -> None:
    assert decide(name, data, declared) == mime


@pytest.mark.parametrize(
    ("name", "data", "declared"),
    [
        ("a.png", JPEG, "image/png"),
        ("a.csv", png(), "text/csv"),
        ("a.png", png(), "image/jpeg"),
        ("a.png", png(), "text/html"),
        ("a.png", b"just text", "image/png"),
        ("a.zip", ZIP, "application/zip"),
        ("a.csv", ZIP, "text/csv"),
        ("a.csv", b"a,b\n", "application/pdf"),
        ("a.docx", b"words", ""),
        ("a.pdf", b"words", "application/pdf"),
        ("a.log.1", bytes(range(256)), ""),
        ("a.txt", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", ""),
        ("a.txt", b"{\\rtf1\\ansi words}", ""),
        ("a.exe", b"MZ\x90\x00" + b"\x00" * 100, "application/octet-stream"),
        ("a.docm", ZIP, ""),
        ("a.txt", b"words", "image/png"),
        ("a", ZIP, ""),
    ],
)
def test_types_that_are_not_accepted_or_do_not_agree(name: str, data: bytes, declared: str) -> None:
    with pytest.raises(NotAccepted):
        decide(name, data, declared)


@pytest.mark.parametrize("declared", ["application/zip", "application/x-zip-compressed", ""])
@pytest.mark.parametrize(
    ("name", "data"), [("a.zip", ZIP), ("a.docm", ZIP), ("a", EMPTY_ZIP)], ids=["zip", "docm", "empty"]
)
def test_an_archive_is_refused_because_it_is_one(name: str, data: bytes, declared: str) -> None:
    with pytest.raises(NotAccepted, match="is not accepted: it is a zip archive"):
        decide(name, data, declared)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b""),
        ("a.pdf", PDF + ZIP),
        ("a.gif", GIF + ZIP),
    ],
)
def test_content_that_is_empty_or_two_things_at_once_is_not_acceptable(name: str, data: bytes) -> None:
    with pytest.raises(NotAcceptable):
        decide(name, data)

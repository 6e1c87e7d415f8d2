"""Text is recognised in the encodings that people still write, and what is no text is refused."""

import os
import time
import zlib

import pytest

from ingress.attachments.structure.limits import Sound, Unsound
from ingress.attachments.structure.text import check_text

GERMAN = "Name;Straße;Größe\nMüller;Königsallee;größer\n"
JAPANESE = "氏名,住所\n山田太郎,東京都\nこれは日本語のテキストファイルです。\n"
RUSSIAN = "Привет, мир. Это проверка текста на русском языке.\n"


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        (b"plain words\n", ""),
        (GERMAN.encode(), ""),
        (GERMAN.encode("utf-8-sig"), ""),
        (b"\x1b[31mred\x1b[0m\x08\x0c\x1a", ""),
        (GERMAN.encode("cp1252"), "windows-1252"),
        ("“quoted”, 5 €\n".encode("cp1252"), "windows-1252"),
        (b"caf\xe9", "windows-1252"),
        ("Straße;Größe\n".encode("cp1252"), "windows-1252"),
        ("El número 5º cuesta £3 más, ¿no? Piñón, acción\n".encode("cp1252"), "windows-1252"),
        ("Zażółć gęślą jaźń i łódź, proszę państwa\n".encode("cp1250") * 3, "windows-1250"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy\n".encode("cp1250"), "windows-1250"),
        (GERMAN.encode("utf-16"), "utf-16le"),
        (b"\xfe\xff" + GERMAN.encode("utf-16-be"), "utf-16be"),
        (GERMAN.encode("utf-16-le"), "utf-16le"),
        (JAPANESE.encode("cp932"), "shift_jis"),
        (JAPANESE.encode("euc_jp"), "euc-jp"),
        (JAPANESE.encode("iso2022_jp"), "iso-2022-jp"),
        (RUSSIAN.encode("cp1251"), "windows-1251"),
        (RUSSIAN.encode("koi8_r"), "koi8-r"),
        ("这是一个中文文本文件,用于测试编码检测。\n".encode("gb18030"), "gb18030"),
        ("這是一個繁體中文的測試檔案。\n".encode("big5"), "big5"),
        ("이것은 한국어 텍스트 파일입니다.\n".encode("cp949"), "euc-kr"),
        (GERMAN.encode() * 50 + b"M\xfcller\n" + JAPANESE.encode()[:-2], ""),
    ],
)
def test_the_encoding_of_a_text_is_found(data: bytes, charset: str) -> None:
    assert check_text(data) == Sound(charset=charset)


@pytest.mark.parametrize(
    "data",
    [
        b"a\x00b",
        b"\xff\xfea",
        b"\xff\xfe\x00\xd8a\x00",
        b"\xff\xfea\x00\x00\x00",
        zlib.compress(bytes(range(256)) * 9).replace(b"\0", b"\1"),
        bytes(range(1, 256)),
        os.urandom(10_000),
    ],
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(Unsound, match="not text"):
        check_text(data)


@pytest.mark.parametrize("line", [b"x" * 99 + b"\n", b"x" * 100, GERMAN.encode("cp1252"), JAPANESE.encode("cp932")])
def test_a_large_text_takes_a_part_of_its_limit(line: bytes) -> None:
    data = line * (10_000_000 // len(line)) + "Müller\n".encode("cp1252")

    before = time.process_time()
    check_text(data)

    assert time.process_time() - before < 1

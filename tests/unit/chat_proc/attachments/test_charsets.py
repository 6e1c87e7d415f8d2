"""Stored texts are read in the encoding that their type names."""

import pytest

from chat_proc.attachments.charsets import CODECS, TextDecoder, decode_text, read_charset
from ingress.attachments.structure import text as detection

WORDS = "Größe"


@pytest.mark.parametrize("label", [label for label in CODECS if label.startswith(("utf", "windows-125"))][:6])
def test_a_text_is_read_as_it_was_written(label: str) -> None:
    data = WORDS.encode(CODECS[label], "replace")

    assert decode_text(data, f"text/csv; charset={label}") == data.decode(CODECS[label])


def test_byte_order_marks_are_no_part_of_a_text() -> None:
    assert decode_text(WORDS.encode("utf-8-sig"), "text/plain") == WORDS
    assert decode_text(b"\xff\xfe" + WORDS.encode("utf-16-le"), "text/plain; charset=utf-16le") == WORDS


@pytest.mark.parametrize(
    "mime", ["text/plain", "text/plain; charset=idna", 'text/plain; Charset="UTF-8"', "text/plain;x"]
)
def test_a_type_without_a_known_encoding_is_utf8(mime: str) -> None:
    assert read_charset(mime) == "utf-8"
    assert decode_text(b"a\xffb", mime) == "a\ufffdb"


def test_characters_cut_between_pieces_are_whole() -> None:
    decoder, data = TextDecoder("text/plain; charset=shift_jis"), "日本語".encode("cp932")

    assert "".join([decoder.decode(data[at : at + 1]) for at in range(len(data))]) == "日本語"
    assert decode_text(data[:-1], "text/plain; charset=shift_jis", whole=False) == "日本"


def test_every_encoding_that_uploads_may_have_can_be_read() -> None:
    assert {*detection.LABELS.values(), *detection.ISO_2022} <= set(CODECS)

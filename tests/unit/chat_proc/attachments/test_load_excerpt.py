"""Parts of stored texts: the same as of a text at hand, with no more held than a chunk and the part."""

import pytest

from chat_proc.attachments.excerpt import Range, cut_excerpt, load_excerpt
from everturn_testing.files.objects import MemoryObjects

TEXT = "".join(f"line {n} é😀\n" for n in range(40_000))


@pytest.mark.parametrize("wanted", [Range(), Range(offset=300_000), Range(line_start=39_990), Range(offset=10**9)])
async def test_a_part_of_an_object_is_the_part_of_its_text(wanted: Range) -> None:
    objects = MemoryObjects()
    objects.stored["key"] = TEXT.encode()

    excerpt = await load_excerpt(objects, "key", len(TEXT.encode()), wanted, 500)

    assert excerpt == cut_excerpt(TEXT, wanted, 500)


async def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    objects = MemoryObjects()
    objects.stored["key"] = b"a\xff\xc3"

    excerpt = await load_excerpt(objects, "key", 3, Range(), 500)

    assert excerpt.text == "a\ufffd\ufffd"


async def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    objects = MemoryObjects()
    objects.stored["key"] = b"\xef\xbb\xbfa"

    excerpt = await load_excerpt(objects, "key", 4, Range(), 9, mime="text/csv")

    assert excerpt.text == "a"

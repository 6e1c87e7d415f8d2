"""The beginnings of files that the model sees unasked."""

import asyncio
from collections.abc import AsyncGenerator

from chat_proc.attachments.policy import BEGINNING_BYTES, PREVIEW_CHARS
from chat_proc.attachments.reader import AttachmentReader
from everturn.files.model import Artifact
from everturn.timeline.blocks import AttachmentTextBody
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.timeline import build_file


def store(objects: MemoryObjects, name: str, data: bytes, mime: str = "text/plain") -> Artifact:
    artifact = build_file("turn_1", name, data, mime=mime)
    objects.stored[artifact.object_key] = data
    return artifact


class SlowObjects(MemoryObjects):
    def __init__(self) -> None:
        super().__init__()
        self.slow: set[str] = set()

    async def load_range(self, key: str, *, start: int, end: int) -> AsyncGenerator[bytes]:
        if key in self.slow:
            await asyncio.sleep(60)
        async for chunk in super().load_range(key, start=start, end=end):
            yield chunk


async def load_preview(objects: MemoryObjects, artifact: Artifact) -> AttachmentTextBody:
    return (await AttachmentReader(objects).load_previews([artifact]))[artifact.ref]


async def test_a_small_file_is_shown_whole() -> None:
    objects = MemoryObjects()

    preview = await load_preview(objects, store(objects, "a.txt", "Grüße".encode()))

    assert (preview.text, preview.total_chars) == ("Grüße", 5)


async def test_a_character_that_the_limit_cuts_is_left_out() -> None:
    objects = MemoryObjects()
    data = b"x" + "é".encode() * BEGINNING_BYTES

    preview = await load_preview(objects, store(objects, "a.txt", data))

    assert "\ufffd" not in preview.text
    assert len(preview.text) == PREVIEW_CHARS
    assert preview.total_chars is None


async def test_invalid_bytes_at_the_end_of_a_file_are_shown() -> None:
    objects = MemoryObjects()

    preview = await load_preview(objects, store(objects, "a.txt", b"ab\xff"))

    assert (preview.text, preview.total_chars) == ("ab\ufffd", 3)


async def test_a_long_file_is_cut_and_its_length_is_given() -> None:
    objects = MemoryObjects()

    preview = await load_preview(objects, store(objects, "a.txt", b"x" * 10_000))

    assert (len(preview.text), preview.total_chars) == (PREVIEW_CHARS, 10_000)


async def test_only_text_attachments_have_previews() -> None:
    objects = MemoryObjects()
    note, image = store(objects, "a.txt", b"note"), store(objects, "b.png", b"\x89PNG", "image/png")

    assert list(await AttachmentReader(objects).load_previews([note, image])) == [note.ref]


async def test_a_file_whose_bytes_are_gone_has_no_preview() -> None:
    objects = MemoryObjects()
    gone, there = build_file("turn_1", "gone.txt", b"gone", mime="text/plain"), store(objects, "there.txt", b"note")

    assert list(await AttachmentReader(objects).load_previews([gone, there])) == [there.ref]


async def test_previews_that_take_too_long_are_left_out() -> None:
    objects = SlowObjects()
    quick, slow = store(objects, "quick.txt", b"note"), store(objects, "slow.txt", b"slow note")
    objects.slow.add(slow.object_key)

    assert list(await AttachmentReader(objects).load_previews([quick, slow], timeout_s=0.05)) == [quick.ref]

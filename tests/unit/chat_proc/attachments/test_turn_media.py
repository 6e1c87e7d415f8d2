"""The images and PDFs of a turn: which are loaded, which are kept, and how long that may take."""

import asyncio
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable

from helpers.event_loop import watch_loop

from chat_proc.attachments.media import AttachedMedia, describe_media
from chat_proc.attachments.policy import FILE_TIMEOUT_S, MAX_IMAGE_BYTES, MAX_MEDIA_PARTS, MAX_REQUEST_BYTES
from chat_proc.attachments.reader import TurnMedia
from chat_proc.turn.leased import TurnActivity
from chat_proc.worker.heartbeat import STALL_S
from everturn.core.errors import Invalid
from everturn.models.port import encode_media
from everturn_testing.core import FixedClock
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.timeline import build_file

MB = 1024 * 1024
PDF = "application/pdf"


class CountedObjects(MemoryObjects):
    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        self.loads.append(key)
        return await super().load(key, max_bytes=max_bytes)

    def add(self, name: str, data: bytes, *, mime: str = "image/png") -> AttachedMedia:
        file = build_file("turn_1", name, data, mime=mime)
        self.stored[file.object_key] = data
        return describe_media(file)


async def same(data: bytes) -> bytes:
    return data


def open_media(objects: MemoryObjects, fit: Callable[[bytes], Awaitable[bytes]] = same, **timeouts: float) -> TurnMedia:
    return TurnMedia(objects, fit, lambda: None, **timeouts)


async def test_a_file_that_is_gone_is_left_out_and_not_tried_again() -> None:
    objects = CountedObjects()
    there, gone = objects.add("a.png", b"a"), objects.add("b.png", b"b")
    del objects.stored[gone.object_key]
    media = open_media(objects)

    for _ in range(2):
        await media.load([gone, there])

    assert dict(media.loaded) == {there.sha256: encode_media(b"a")}
    assert objects.loads == [gone.object_key, there.object_key]


async def test_a_file_is_tried_again_when_the_store_answers_again() -> None:
    objects = CountedObjects()
    photo, media = objects.add("a.png", b"a"), open_media(objects)

    objects.down = True
    await media.load([photo])
    objects.down = False
    away = dict(media.loaded)
    await media.load([photo])

    assert (away, dict(media.loaded)) == ({}, {photo.sha256: encode_media(b"a")})


async def test_a_picture_that_can_not_be_decoded_is_tried_once() -> None:
    objects, fits = CountedObjects(), list[bytes]()
    photo = objects.add("a.png", b"a")

    async def fit(data: bytes) -> bytes:
        fits.append(data)
        raise Invalid("The picture can't be decoded.")

    media = open_media(objects, fit)
    for _ in range(3):
        await media.load([photo])

    assert len(fits) == 1


async def test_only_as_many_files_as_one_request_attaches_are_loaded() -> None:
    objects = CountedObjects()
    photos = [objects.add(f"{n}.png", bytes([n])) for n in range(MAX_MEDIA_PARTS + 5)]
    media = open_media(objects)

    await media.load(photos)

    assert list(media.loaded) == [photo.sha256 for photo in photos[:MAX_MEDIA_PARTS]]
    assert len(objects.loads) == MAX_MEDIA_PARTS


async def test_a_file_without_room_is_not_loaded_and_a_later_smaller_one_is() -> None:
    objects = CountedObjects()
    files = [objects.add(f"{n}.pdf", bytes([n]) * 9 * MB, mime=PDF) for n in range(3)]
    small = objects.add("small.png", b"small")
    media = open_media(objects)

    for _ in range(2):
        await media.load([*files, small])

    assert objects.loads == [files[0].object_key, files[1].object_key, small.object_key]
    assert sum(file.size for file in media.loaded.values()) <= MAX_REQUEST_BYTES


async def test_a_picture_that_is_too_large_after_shrinking_is_shrunk_once() -> None:
    objects, fits = CountedObjects(), list[bytes]()
    photo = objects.add("a.png", b"a")

    async def grow(data: bytes) -> bytes:
        fits.append(data)
        return bytes(MAX_IMAGE_BYTES + 1)

    media = open_media(objects, grow)
    for _ in range(2):
        await media.load([photo])

    assert (len(fits), dict(media.loaded)) == (1, {})


async def test_the_bytes_of_files_that_are_no_longer_wanted_are_released() -> None:
    objects = CountedObjects()
    old, new = objects.add("old.png", b"old"), objects.add("new.png", b"new")
    media = open_media(objects)

    await media.load([old])
    await media.load([new])

    assert list(media.loaded) == [new.sha256]


class UncheckedObjects(CountedObjects):
    """Loads without a hash of what it loads, which real stores compute in a thread."""

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        return self.stored[key]


async def test_large_files_are_encoded_beside_the_event_loop() -> None:
    objects = UncheckedObjects()
    files = [objects.add(f"{n}.pdf", os.urandom(9 * MB), mime=PDF) for n in range(2)]
    media = open_media(objects)
    began_s = time.thread_time()
    for file in files:
        b64encode(objects.stored[file.object_key])
    work_s = time.thread_time() - began_s

    async with watch_loop() as watch:
        await media.load(files)

    assert watch.longest_s < work_s / 4
    assert [b64decode(file.base64) for file in media.loaded.values()] == [
        objects.stored[file.object_key] for file in files
    ]


async def test_a_pdf_is_not_decoded() -> None:
    objects = CountedObjects()
    report = objects.add("a.pdf", b"\x89PNG\r\n\x1a\n", mime=PDF)

    async def fit(_: bytes) -> bytes:
        raise AssertionError("only images are shrunk")

    media = open_media(objects, fit)
    await media.load([report])

    assert list(media.loaded) == [report.sha256]


async def test_a_picture_that_waits_too_long_is_left_out_until_the_next_request() -> None:
    objects, may_fit = CountedObjects(), asyncio.Event()
    slow, quick = objects.add("slow.png", b"slow"), objects.add("quick.png", b"quick")

    async def fit(data: bytes) -> bytes:
        if data == b"slow":
            await may_fit.wait()
        return data

    media = open_media(objects, fit, file_timeout_s=0.05)
    await media.load([slow, quick])
    first = list(media.loaded)
    may_fit.set()
    await media.load([slow, quick])

    assert first == [quick.sha256]
    assert list(media.loaded) == [slow.sha256, quick.sha256]


async def test_all_pictures_of_a_request_have_one_limit() -> None:
    objects = CountedObjects()
    photos = [objects.add(f"{n}.png", bytes([n])) for n in range(20)]

    async def fit(data: bytes) -> bytes:
        await asyncio.sleep(0.05)
        return data

    media = open_media(objects, fit, request_timeout_s=0.18)
    counts = list[int]()
    for _ in range(2):
        await media.load(photos)
        counts.append(len(media.loaded))

    assert 1 <= counts[0] <= 4
    assert counts[0] < counts[1] <= 8


async def test_a_turn_that_waits_for_many_pictures_is_not_stalled() -> None:
    objects, clock = CountedObjects(), FixedClock()
    activity = TurnActivity(clock.monotonic)
    photos = [objects.add(f"{n}.png", bytes([n])) for n in range(20)]
    stalled = list[float]()

    async def fit(data: bytes) -> bytes:
        clock.advance(FILE_TIMEOUT_S)
        stalled.append(activity.stalled_for_s())
        return data

    await TurnMedia(objects, fit, activity.note_progress).load(photos)

    assert len(stalled) == 20
    assert max(stalled) < STALL_S

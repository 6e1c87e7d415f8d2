"""Files keep the contract of Objects; nothing half written is ever seen, nothing altered is ever served."""

import asyncio
import errno
import fcntl
import io
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from everturn.core.errors import Invalid, Unavailable
from everturn.core.metrics import DISK_FULL
from everturn.files.filesystem import THREADS, FileObjects
from everturn.files.objects import CHUNK_BYTES, AlteredObject
from everturn_testing.files.objects_contract import Alter, ObjectsContract, key_of


@pytest.fixture
def objects(tmp_path: Path) -> FileObjects:
    opened = FileObjects(tmp_path / "objects")
    opened.prepare()
    return opened


class TestFileObjects(ObjectsContract):
    @pytest.fixture
    def objects(self, objects: FileObjects) -> FileObjects:
        return objects

    @pytest.fixture
    def alter(self, tmp_path: Path) -> Alter:
        return lambda key, data: tmp_path.joinpath("objects", key).write_bytes(data)

    @pytest.fixture
    def unreachable(self, tmp_path: Path) -> FileObjects:
        (tmp_path / "no folder").write_text("")
        return FileObjects(tmp_path / "no folder")


async def test_only_the_owner_may_read(objects: FileObjects, tmp_path: Path) -> None:
    await objects.save(key_of(b"a"), b"a")

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.joinpath("objects").rglob("*")}

    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())
    assert len(modes) == 3


async def test_no_temporary_file_is_left(objects: FileObjects, tmp_path: Path) -> None:
    await objects.save(key_of(b"a"), b"a")
    await objects.check()
    with pytest.raises(Invalid):
        await objects.save(key_of(b"a"), b"b")

    assert list((tmp_path / "objects" / "tmp").iterdir()) == []


async def test_only_abandoned_temporary_files_are_removed_at_start(objects: FileObjects, tmp_path: Path) -> None:
    temporary = tmp_path / "objects" / "tmp"
    (temporary / "of the dead").write_bytes(b"ha")
    with (temporary / "of the living").open("wb") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)

        FileObjects(tmp_path / "objects").prepare()

        assert [file.name for file in temporary.iterdir()] == ["of the living"]


async def test_no_part_of_an_altered_object_is_served(objects: FileObjects, tmp_path: Path) -> None:
    key = key_of(b"data")
    await objects.save(key, b"data")
    (tmp_path / "objects" / key).write_bytes(b"dato")

    with pytest.raises(AlteredObject):
        await anext(aiter(objects.load_range(key, start=0, end=1)))


async def test_a_file_has_no_url(objects: FileObjects) -> None:
    assert await objects.try_presign(key_of(b"a"), content_type="text/css", disposition="inline", lifetime_s=9) is None


async def test_a_listing_skips_other_files(objects: FileObjects, tmp_path: Path) -> None:
    await objects.save(key_of(b"a"), b"a")
    for stray in ("notes.txt", f"{key_of(b'a').partition('/')[0]}/notes.txt", "tmp/half"):
        (tmp_path / "objects" / stray).write_text("not ours")

    assert [found.key for found in (await objects.load_page()).objects] == [key_of(b"a")]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "../etc/passwd",
        "conv_x/" + "0" * 64,
        key_of(b"a").upper(),
        key_of(b"a") + "/..",
        "/" + key_of(b"a"),
        key_of(b"a").replace("/", "/../"),
        key_of(b"a")[:-1] + "\u0661",
        key_of(b"a") + "\x00",
    ],
)
async def test_a_malformed_key_is_invalid(key: str, objects: FileObjects) -> None:
    with pytest.raises(Invalid):
        await objects.save(key, b"a")
    with pytest.raises(Invalid):
        await objects.load(key, max_bytes=1)
    with pytest.raises(Invalid):
        await objects.delete((key,))


async def test_deleting_the_last_object_removes_the_folder(objects: FileObjects, tmp_path: Path) -> None:
    await objects.save(key_of(b"a"), b"a")
    await objects.save(key_of(b"b"), b"b")
    folder = (tmp_path / "objects" / key_of(b"a")).parent

    await objects.delete((key_of(b"a"),))
    assert folder.exists()
    await objects.delete((key_of(b"b"),))

    assert not folder.exists()


async def test_a_store_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file where the folder should be")
    objects = FileObjects(tmp_path / "objects")

    with pytest.raises(Unavailable):
        objects.prepare()
    with pytest.raises(Unavailable):
        await objects.check()
    with pytest.raises(Unavailable):
        await objects.save(key_of(b"a"), b"a")


async def test_a_full_disk_is_unavailable_and_counted(
    objects: FileObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = DISK_FULL.labels("objects")._value.get()
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(Unavailable, match="No space left"):
            await objects.save(key_of(b"a"), b"a")

    assert DISK_FULL.labels("objects")._value.get() == before + 1
    assert list((tmp_path / "objects" / "tmp").iterdir()) == []
    await objects.save(key_of(b"a"), b"a")


def is_open(path: Path) -> bool:
    links = (Path("/proc/self/fd") / number for number in os.listdir("/proc/self/fd"))
    return any(link.is_symlink() and os.readlink(link) == str(path) for link in links)


async def test_a_reader_that_leaves_early_closes_the_file_without_waiting(objects: FileObjects, tmp_path: Path) -> None:
    objects._threads = ThreadPoolExecutor(1)
    data, busy = b"a" * (2 * CHUNK_BYTES), threading.Event()
    path = tmp_path / "objects" / key_of(data)
    await objects.save(key_of(data), data)
    reading = objects.load_range(key_of(data), start=0, end=len(data))
    await anext(reading)
    working = objects._threads.submit(busy.wait, 30)

    await reading.aclose()

    assert not working.done()
    assert is_open(path)
    busy.set()
    await objects.check()  # the pool's one thread runs it after all that was waiting
    assert not is_open(path)


class HungFile(io.RawIOBase):
    """A read blocks until `go_on`."""

    def __init__(self, go_on: threading.Event) -> None:
        self._go_on = go_on
        self.reading = threading.Event()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return offset

    def readinto(self, buffer: object, /) -> int:
        self.reading.set()
        self._go_on.wait(30)
        return 0


async def test_a_read_that_hangs_does_not_block_the_event_loop_of_a_closed_store(
    objects: FileObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    hung = HungFile(go_on)
    file = io.BufferedReader(hung)
    monkeypatch.setattr(objects, "_open_checked", lambda _: file)
    reading = asyncio.ensure_future(anext(objects.load_range(key_of(b"a"), start=0, end=1)))
    assert await asyncio.to_thread(hung.reading.wait, 10)

    objects.close()
    reading.cancel()
    await asyncio.wait([reading])

    assert not go_on.is_set()
    assert not file.closed
    go_on.set()
    async with asyncio.timeout(10):
        while not file.closed:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


async def test_a_store_that_hangs_takes_no_threads_of_other_work(
    objects: FileObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(objects, "_load", lambda *_: go_on.wait(30))
    hanging = [asyncio.create_task(objects.load(key_of(b"a"), max_bytes=1)) for _ in range(2 * THREADS)]
    try:
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: True)
    finally:
        go_on.set()
        await asyncio.gather(*hanging)

"""Folders that take long to fill are filled once, kept while there is room, and never lost."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from everturn.core.kept_folders import FillRefused, KeptFolders, open_root


def build(root: Path, *, max_kept: int = 8, max_bytes: int = 1_000) -> KeptFolders[str, int]:
    return KeptFolders(root, max_kept=max_kept, max_bytes=max_bytes)


def see(root: Path) -> set[Path]:
    return {*root.iterdir()}


async def add(path: Path, present: int | None) -> int:
    """Fill a folder with one more file."""
    count = (present or 0) + 1
    (path / str(count)).write_bytes(b"x" * 100)
    return count


async def keep(path: Path, present: int | None) -> int:
    """Fill a folder only if it is new."""
    return await add(path, None) if present is None else present


async def test_a_folder_is_filled_once_by_many_at_once(tmp_path: Path) -> None:
    folders = build(tmp_path)

    async def use() -> tuple[Path, int]:
        async with folders.open("a", keep) as found:
            await asyncio.sleep(0)
            return found

    assert len(set(await asyncio.gather(*(use() for _ in range(5))))) == 1
    assert len(see(tmp_path)) == 1


async def test_a_folder_grows_while_it_is_used(tmp_path: Path) -> None:
    folders = build(tmp_path)
    async with folders.open("a", add) as (first, count), folders.open("a", add) as (second, more):
        assert (first, count, more) == (second, 1, 2)


async def test_a_folder_that_does_not_fit_is_replaced_once_nobody_uses_it(tmp_path: Path) -> None:
    folders = build(tmp_path)
    async with folders.open("a", keep) as (old, _), folders.open("a", keep, fits=lambda _: False) as (new, _):
        assert old != new and old.exists()
    assert see(tmp_path) == {new}


@pytest.mark.parametrize("users", [0, 1])
async def test_what_can_not_be_filled_is_removed(tmp_path: Path, users: int) -> None:
    folders = build(tmp_path)

    async def fail(path: Path, present: int | None) -> int:
        (path / "half").touch()
        raise OSError("The disk is full.")

    async with folders.open("a", keep) as (old, _):
        if users:
            with pytest.raises(OSError, match="full"):
                async with folders.open("a", fail):
                    pass
            assert old.exists()
    if not users:
        with pytest.raises(OSError, match="full"):
            async with folders.open("a", fail):
                pass
    assert see(tmp_path) == set()
    async with folders.open("a", keep) as (new, count):
        assert (new != old, count) == (True, 1)


async def test_a_cancelled_fill_leaves_nothing(tmp_path: Path) -> None:
    folders, begun = build(tmp_path), asyncio.Event()

    async def hang(path: Path, present: int | None) -> int:
        begun.set()
        await asyncio.Event().wait()
        return 1

    async def use() -> None:
        async with folders.open("a", hang):
            pass

    task = asyncio.create_task(use())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert see(tmp_path) == set()
    async with folders.open("a", keep) as (_, count):
        assert count == 1


@pytest.mark.parametrize("limits", [{"max_kept": 2}, {"max_bytes": 200}])
async def test_what_was_used_longest_ago_is_removed(tmp_path: Path, limits: dict[str, int]) -> None:
    folders = build(tmp_path, **limits)
    paths: dict[str, Path] = {}
    for key in ("a", "b", "a", "c"):
        async with folders.open(key, keep) as (path, _):
            paths[key] = path

    assert see(tmp_path) == {paths["a"], paths["c"]}


async def test_what_is_in_use_is_not_removed(tmp_path: Path) -> None:
    folders = build(tmp_path, max_kept=1)
    async with folders.open("a", keep) as (used, _), folders.open("b", keep), folders.open("c", keep):
        assert used.exists() and len(see(tmp_path)) == 3


async def test_a_user_that_is_cancelled_leaves_the_folder_to_others(tmp_path: Path) -> None:
    folders, opened = build(tmp_path), asyncio.Event()

    async def use() -> None:
        async with folders.open("a", keep):
            opened.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await opened.wait()
    (path,) = see(tmp_path)
    task.cancel()
    await asyncio.wait({task})

    async with folders.open("a", keep) as (again, _):
        assert again == path


async def test_nothing_is_filled_while_all_room_is_in_use(tmp_path: Path) -> None:
    folders = build(tmp_path, max_bytes=200)
    async with folders.open("a", keep), folders.open("b", keep) as (path, _):
        await folders.remove("b")
        with pytest.raises(FillRefused):
            async with folders.open("c", keep):
                pass
        async with folders.open("a", keep):
            pass
    assert not path.exists()
    async with folders.open("c", keep) as (path, _):
        assert path.exists()


async def test_a_fill_that_is_refused_keeps_the_folder(tmp_path: Path) -> None:
    folders = build(tmp_path)

    async def refuse(path: Path, present: int | None) -> int:
        raise FillRefused()

    async with folders.open("a", keep) as (path, _):
        pass
    for key in ("a", "b"):
        with pytest.raises(FillRefused):
            async with folders.open(key, refuse):
                pass
    assert see(tmp_path) == {path}


async def test_the_folder_of_a_process_that_was_killed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, other = tmp_path / "kept-left", tmp_path / "other-left"
    left.mkdir()
    (left / "file").touch()
    other.mkdir()
    os.symlink(other, tmp_path / "kept-link")
    async with open_root("kept-") as first, open_root("kept-") as second:
        assert first.exists() and second.exists() and not left.exists()

    assert see(tmp_path) == {other, tmp_path / "kept-link"}

"""Bundles of workers over a real registry: reload under load, versions of running turns, removal, broken content."""

import asyncio
import json
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import cast

import asyncpg
import pytest
from helpers.waiting import wait_until
from structlog.testing import capture_logs

from chat_proc.agent.kit import BundleKit, TurnKit
from chat_proc.bundles import versions
from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.folders import BundleFolders
from chat_proc.bundles.manifest import BadBundle, BundleProps
from chat_proc.bundles.repositories import Fetched
from chat_proc.bundles.versions import MAX_ERROR_CHARS, RETRY_S, STORE_RETRY_S, BundleLibrary, BundleUnavailable
from everturn.bundles.postgres import PostgresBundles
from everturn.bundles.registry import BUILT_IN, RENEW_S, BundleListing, OperationListing
from everturn.core.errors import Invalid, Unavailable
from everturn.core.identity import Role
from everturn.core.metrics import BUNDLES_REFUSED
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.core import FixedClock

Library = BundleLibrary[BundleKit]
BASE = BundleKit(cast(TurnKit, None))


class Opened:
    """Opens versions, and remembers which are open. A bundle whose instructions are in `broken` can't be opened."""

    def __init__(self) -> None:
        self.open: list[Bundle] = []
        self.broken: dict[str, str] = {}
        self.slow = asyncio.Event()
        """Until it is set, bundles with the instructions `slow` don't open, and those with `stubborn` ignore their
        cancellation too. Those with `sticks` don't close."""
        self.tries = 0
        self.problems: tuple[str, ...] = ()
        """What does not work in the bundle `desk`."""
        self.operations: Sequence[OperationListing] | None = ()
        """Those of the bundle `desk`; None if listing them fails."""

    @asynccontextmanager
    async def open_kit(self, bundle: Bundle) -> AsyncGenerator[BundleKit]:
        self.tries += 1
        if bundle.manifest.instructions == "slow":
            await self.slow.wait()
        while bundle.manifest.instructions == "stubborn" and not self.slow.is_set():
            with suppress(asyncio.CancelledError):
                await self.slow.wait()
        if bundle.manifest.instructions in self.broken:
            raise Invalid(self.broken[bundle.manifest.instructions])
        self.open.append(bundle)
        yield BundleKit(cast(TurnKit, None), bundle_id=bundle.id, digest=bundle.digest)
        self.open.remove(bundle)
        if bundle.manifest.instructions == "sticks":
            await asyncio.Event().wait()

    def list_operations(self, kit: BundleKit) -> Sequence[OperationListing]:
        if kit.bundle_id != "desk":
            return ()
        if self.operations is None:
            raise RuntimeError("No operations")
        return self.operations

    @property
    def texts(self) -> list[str]:
        return sorted(bundle.manifest.instructions for bundle in self.open if bundle.id == "desk")


@pytest.fixture
async def worker(database: DatabaseUrls) -> AsyncIterator[Database]:
    superuser = await asyncpg.connect(database.superuser)
    await superuser.execute("DELETE FROM bundle")
    await superuser.close()
    async with open_database(database.worker, pool_size=8, application_name="test-worker") as opened:
        yield opened


@pytest.fixture
def registry(worker: Database) -> PostgresBundles:
    return PostgresBundles(worker)


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def library(
    registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> AsyncIterator[Library]:
    made = make(registry, tmp_path, opened, clock)
    yield made
    await made.close()
    assert opened.open == []


def make(
    registry: PostgresBundles,
    folder: Path,
    opened: Opened,
    clock: FixedClock,
    props: Mapping[str, BundleProps] | None = None,
) -> Library:
    folders = BundleFolders(folder, props or {}, "default")
    return BundleLibrary(
        registry,
        folders,
        opened.open_kit,
        BASE,
        list_problems=lambda kit: opened.problems if kit.bundle_id == "desk" else (),
        list_operations=opened.list_operations,
        monotonic=clock.monotonic,
    )


def write(folder: Path, text: str, *, name: str = "desk") -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "bundle.toml").write_text(f'id = "{name}"\ninstructions = "{text}"\n')


async def settle(library: Library) -> None:
    await library.refresh()
    await library.refresh()


async def list_desk(registry: PostgresBundles) -> BundleListing | None:
    return next((listing for listing in await registry.load_listed() if listing.id == "desk"), None)


async def test_a_turn_keeps_its_version_while_new_turns_take_the_new_one(
    library: Library, tmp_path: Path, opened: Opened
) -> None:
    write(tmp_path, "first")
    await library.refresh()

    async with library.use("desk", None) as first:
        write(tmp_path, "second")
        await settle(library)
        async with library.use("desk", None) as second, library.use("desk", first.digest) as again:
            assert again is first and second.digest != first.digest
            assert opened.texts == ["first", "second"]
        await library.refresh()
        assert opened.texts == ["first", "second"]

    await library.refresh()
    await wait_until(lambda: opened.texts == ["second"])


async def test_another_worker_runs_the_version_with_which_a_turn_began(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> None:
    write(tmp_path, "first")
    await library.refresh()
    async with library.use("desk", None) as first:
        pass
    (tmp_path / "other").mkdir()
    other = make(registry, tmp_path / "other", opened, clock)
    await other.refresh()

    async with other.use("desk", first.digest) as taken_over, other.use("desk", None) as new:
        assert taken_over.digest == new.digest == first.digest

    await other.close()


async def test_turns_that_wait_continue_after_their_bundle_was_removed(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> None:
    write(tmp_path, "first")
    await library.refresh()
    async with library.use("desk", None) as first:
        pass
    (tmp_path / "desk" / "bundle.toml").unlink()
    (tmp_path / "desk").rmdir()
    await library.refresh()
    assert opened.texts == [] and await list_desk(registry) is None

    async with library.use("desk", first.digest) as later:
        assert later.digest == first.digest


async def test_a_turn_whose_version_is_nowhere_takes_the_newest(library: Library, tmp_path: Path) -> None:
    write(tmp_path, "first")
    await library.refresh()

    async with library.use("desk", "f" * 64) as found, library.use("desk", None) as newest:
        assert found is newest


async def test_a_worker_without_the_bundle_continues_such_a_turn_with_the_newest_version(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> None:
    write(tmp_path, "first")
    await library.refresh()
    (tmp_path / "other").mkdir()
    other = make(registry, tmp_path / "other", opened, clock)
    await other.refresh()

    async with library.use("desk", None) as newest, other.use("desk", "f" * 64) as found:
        assert found.digest == newest.digest

    await other.close()


async def test_a_bundle_that_nobody_has_is_unavailable(library: Library) -> None:
    await library.refresh()

    for digest in (None, "f" * 64):
        with pytest.raises(BundleUnavailable, match="desk"):
            async with library.use("desk", digest):
                pass


async def test_the_default_agent_answers_messages_without_a_bundle(library: Library) -> None:
    await library.refresh()

    async with library.use(None, None) as unnamed, library.use("default", None) as named:
        assert unnamed is named and named.bundle_id == "default"


async def test_broken_content_is_reported_and_the_previous_version_continues(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> None:
    write(tmp_path, "first")
    await library.refresh()
    opened.broken["second"] = "Its tools can't be loaded."
    write(tmp_path, "second")

    with capture_logs() as logs:
        await settle(library)
        await settle(library)

    # Workers look every two seconds, but report an error once.
    assert [log["error"] for log in logs if log["log_level"] == "error"] == ["Its tools can't be loaded."]
    listing = await list_desk(registry)
    assert listing is not None and listing.is_ready and listing.error == "Its tools can't be loaded."
    async with library.use("desk", None) as kit:
        assert kit.digest == listing.digest
    tries = opened.tries
    await settle(library)
    assert opened.tries == tries

    opened.broken.clear()
    clock.advance(RETRY_S + 1)
    with capture_logs() as logs:
        await library.refresh()

    listing = await list_desk(registry)
    assert listing is not None and not listing.error and opened.texts == ["second"]
    assert [log["event"] for log in logs] == ["Loaded a bundle", "A bundle can be used again"]


async def test_a_version_that_can_not_be_stored_is_not_opened_again_at_each_scan(
    library: Library,
    registry: PostgresBundles,
    tmp_path: Path,
    opened: Opened,
    clock: FixedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(content: object) -> None:
        raise Unavailable("It does not respond.")

    write(tmp_path, "first")
    with monkeypatch.context() as outage:
        outage.setattr(registry, "store", fail)
        await library.refresh()
        tries = opened.tries
        await settle(library)
    assert opened.tries == tries

    clock.advance(STORE_RETRY_S + 1)
    await library.refresh()

    assert opened.texts == ["first"] and await list_desk(registry) is not None


async def test_a_version_that_neither_opens_nor_closes_holds_nothing_up(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "CLOSE_S", 0.05)
    write(tmp_path, "sticks")
    await library.refresh()
    monkeypatch.setattr(versions, "OPEN_S", 0.05)
    write(tmp_path, "slow")

    await settle(library)
    refused = await list_desk(registry)
    write(tmp_path, "third")
    await settle(library)
    await library.refresh()

    assert refused is not None and refused.is_ready and refused.error == "It was not ready after 0 s."
    listing = await list_desk(registry)
    assert listing is not None and not listing.error and opened.texts == ["third"]


async def test_a_version_that_closes_slowly_delays_no_other(
    registry: PostgresBundles, tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "sticks")
    library = BundleLibrary(registry, BundleFolders(tmp_path, {}, "default"), opened.open_kit, BASE, scan_s=0.02)
    running = asyncio.create_task(library.run())
    async with asyncio.timeout(8):
        for text in ("sticks", "second", "third"):
            write(tmp_path, text)
            await wait_until(lambda wanted=text: opened.texts == [wanted])

    running.cancel()
    await asyncio.wait({running})
    monkeypatch.setattr(versions, "CLOSE_S", 0.05)
    monkeypatch.setattr(versions, "GRACE_S", 0.05)
    await library.close()
    assert opened.open == []


async def test_closing_does_not_wait_for_what_still_opens(
    registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> None:
    library = make(registry, tmp_path, opened, clock)
    write(tmp_path, "first")
    await library.refresh()
    write(tmp_path, "stubborn", name="other")
    refreshing = asyncio.create_task(library.refresh())
    await wait_until(lambda: opened.tries == 3)

    closing = asyncio.create_task(library.close())
    try:
        await wait_until(lambda: not opened.open)
        assert not closing.done()
    finally:
        opened.slow.set()
    await asyncio.wait({closing, refreshing})
    assert not opened.open and closing.exception() is None


async def test_closing_that_is_cancelled_leaves_no_task(
    registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> None:
    library = make(registry, tmp_path, opened, clock)
    write(tmp_path, "sticks")
    await library.refresh()
    closing = asyncio.create_task(library.close())
    await wait_until(lambda: not opened.open)

    closing.cancel()
    await asyncio.wait({closing})

    assert closing.cancelled()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "close bundle"]


async def test_content_that_is_still_being_fetched_is_no_error(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened
) -> None:
    fetched = tmp_path / "fetched" / "desk"
    folders = BundleFolders(None, {}, "default", list_fetched=lambda: {"desk": Fetched(fetched)})
    refused = BUNDLES_REFUSED._value.get()
    with capture_logs() as logs:
        new = BundleLibrary(registry, folders, opened.open_kit, BASE)
        await new.refresh()
        absent = await list_desk(registry)
        await new.close()
        write(tmp_path, "stored")
        await library.refresh()
        restarted = BundleLibrary(registry, folders, opened.open_kit, BASE)
        await restarted.refresh()
        stored = await list_desk(registry)
        async with restarted.use("desk", None) as kit:
            assert stored is not None and kit.digest == stored.digest
        fetched.parent.mkdir()
        write(fetched.parent, "fetched")
        await restarted.refresh()

    assert opened.texts == ["fetched", "stored"]
    await restarted.close()
    assert absent is not None and (absent.is_ready, absent.error) == (False, "It is not loaded yet.")
    assert stored.is_ready and not stored.error
    assert BUNDLES_REFUSED._value.get() == refused
    assert not [log for log in logs if log["log_level"] == "error"]


async def test_what_does_not_work_in_the_version_that_serves_is_not_its_error(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened
) -> None:
    write(tmp_path, "first")
    opened.problems = ("mcp.crm: The server does not answer.",)
    await library.refresh()
    listing = await list_desk(registry)
    opened.problems = ()
    await library.refresh()
    repaired = await list_desk(registry)

    assert listing is not None and listing.is_ready and not listing.error
    assert listing.problems == ("mcp.crm: The server does not answer.",)
    assert repaired is not None and repaired.problems == ()


async def test_a_bundle_that_never_worked_is_listed_with_its_error(
    library: Library, registry: PostgresBundles, tmp_path: Path
) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "bundle.toml").write_text("id = ")

    await library.refresh()

    listing = await list_desk(registry)
    assert listing is not None and not listing.is_ready and "bundle.toml: Invalid value" in listing.error


ODD_TEXT = "a\x00b\ud800\U0001f600" + "x" * 10_000


@pytest.mark.parametrize(
    ("problems", "operations"),
    [
        ((ODD_TEXT,), [OperationListing("do", ODD_TEXT, {ODD_TEXT: [ODD_TEXT, float("nan")]}, ("paid",))]),
        ((), [OperationListing("do", "It does.", {"default": 10**5_000})]),
        ((), [OperationListing("do", "It does.", {"default": {1, 2}})]),
        ((), None),
    ],
)
async def test_what_cannot_be_stored_of_one_bundle_keeps_no_other_from_being_published(
    library: Library,
    registry: PostgresBundles,
    tmp_path: Path,
    opened: Opened,
    problems: tuple[str, ...],
    operations: Sequence[OperationListing] | None,
) -> None:
    write(tmp_path, "first", name="gone")
    await library.refresh()
    (tmp_path / "gone" / "bundle.toml").unlink()
    (tmp_path / "gone").rmdir()
    opened.problems, opened.operations = problems, operations
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "bundle.toml").write_text('id = "desk"\nroles = ["paid"]\n')
    (tmp_path / os.fsdecode(b"\xff\xfe")).mkdir()
    write(tmp_path, "first", name="other")

    await library.refresh()

    listed = {listing.id: listing for listing in await registry.load_listed()}
    assert [*listed] == ["\\udcff\\udcfe", "default", "desk", "other"]
    assert listed["\\udcff\\udcfe"].error.endswith("has no bundle.toml.") and not listed["other"].error
    assert listed["desk"].is_ready and listed["desk"].roles == ("paid",)
    assert listed["desk"].problems or "could not be described" in listed["desk"].error
    json.dumps([asdict(listing) for listing in listed.values()], ensure_ascii=False, allow_nan=False).encode()


async def test_a_long_error_with_odd_characters_is_published(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened
) -> None:
    opened.broken["second"] = ODD_TEXT
    write(tmp_path, "second")
    await library.refresh()

    listing = await list_desk(registry)

    assert listing is not None and listing.error.startswith("a\ufffdb\ufffd\U0001f600xx")
    assert not listing.is_ready and len(listing.error) == MAX_ERROR_CHARS


async def test_bundles_are_published_again_while_nothing_changes(
    library: Library, registry: PostgresBundles, tmp_path: Path, clock: FixedClock, worker: Database
) -> None:
    write(tmp_path, "first")
    await library.refresh()
    seen = await read_seen(worker)
    await library.refresh()
    assert await read_seen(worker) == seen

    clock.advance(RENEW_S)
    await library.refresh()

    assert await read_seen(worker) > seen


async def read_seen(worker: Database) -> object:
    async with worker.connection() as connection:
        return await connection.fetchval("SELECT max(seen_at) FROM bundle")


@pytest.fixture
async def restart(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> AsyncIterator[Callable[..., Awaitable[Library]]]:
    """Closes the library, and looks with another one."""
    restarted: list[Library] = []

    async def begin(props: Mapping[str, BundleProps] | None = None) -> Library:
        await library.close()
        restarted.append(make(registry, tmp_path, opened, clock, props))
        await restarted[-1].start()
        await restarted[-1].refresh()
        return restarted[-1]

    yield begin
    for each in restarted:
        await each.close()


BROKEN = 'id = "desk"\ninstructions = "broken"\n'


@pytest.mark.parametrize(
    ("manifest", "error"),
    [
        (BROKEN + "titel = 'x'", "titel: Unknown key"),
        (BROKEN + "[settings]\na = " + "[" * 900, "nested too deep"),
        (BROKEN, "Its tools can't be loaded."),
    ],
)
async def test_the_version_before_continues_also_after_a_restart(
    library: Library,
    registry: PostgresBundles,
    tmp_path: Path,
    opened: Opened,
    restart: Callable[..., Awaitable[Library]],
    manifest: str,
    error: str,
) -> None:
    write(tmp_path, "first")
    (tmp_path / "desk").rename(tmp_path / "z-folder")
    await library.refresh()
    opened.broken["broken"] = "Its tools can't be loaded."
    (tmp_path / "z-folder" / "bundle.toml").write_text(manifest)
    await settle(library)
    before = await list_desk(registry)

    restarted = await restart({"desk": BundleProps(roles=(Role.PAID,))})

    listing = await list_desk(registry)
    assert before is not None and error in before.error and before.is_ready and before.roles == ()
    assert listing is not None and listing.error == before.error and listing.is_ready and listing.roles == ("paid",)
    assert restarted._folders.find_folder("desk") == tmp_path / "z-folder"
    async with restarted.use("desk", None) as kit:
        assert kit.digest == listing.digest and opened.texts == ["first"]

    (tmp_path / "z-folder" / "bundle.toml").write_text('id = "desk"\ninstructions = "second"\n')
    await settle(restarted)

    assert opened.texts == ["second"] and not (await list_desk(registry) or BUILT_IN).error


async def test_a_worker_starts_with_the_stored_version_of_its_default_bundle(
    library: Library, tmp_path: Path, opened: Opened, restart: Callable[..., Awaitable[Library]]
) -> None:
    write(tmp_path, "first", name="default")
    await library.refresh()
    async with library.use(None, None) as first:
        pass
    (tmp_path / "default" / "bundle.toml").write_text('id = "default"\ntitel = "typo"\n')

    restarted = await restart()

    async with restarted.use(None, None) as kit:
        assert kit.digest == first.digest


async def test_a_bundle_that_was_removed_does_not_come_back_after_a_restart(
    library: Library, tmp_path: Path, opened: Opened, restart: Callable[..., Awaitable[Library]]
) -> None:
    write(tmp_path, "first")
    await library.refresh()
    (tmp_path / "desk" / "bundle.toml").unlink()
    (tmp_path / "desk").rmdir()

    await restart()

    assert opened.texts == []


async def test_overrides_of_a_bundle_that_was_removed_do_not_keep_it(
    registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> None:
    write(tmp_path, "first")
    made = make(registry, tmp_path, opened, clock, {"desk": BundleProps(title="Our desk")})
    await made.refresh()
    (tmp_path / "desk" / "bundle.toml").unlink()
    (tmp_path / "desk").rmdir()

    await settle(made)
    removed = await list_desk(registry)
    assert opened.texts == [] and (removed is None or not removed.is_ready)
    clock.advance(RENEW_S)
    await made.refresh()

    listing = await list_desk(registry)
    assert listing is not None
    assert not listing.is_ready and listing.error.startswith("No folder and no repository has the bundle desk")
    await made.close()


async def test_a_default_bundle_that_was_never_usable_prevents_the_start(
    library: Library, registry: PostgresBundles, tmp_path: Path, opened: Opened, clock: FixedClock
) -> None:
    opened.broken["no"] = "Its tools can't be loaded."
    write(tmp_path, "no", name="default")
    with pytest.raises(BadBundle, match="default bundle default can't be used: Its tools can't be loaded"):
        await library.start()

    (tmp_path / "default" / "bundle.toml").write_text("id = ")
    with pytest.raises(BadBundle, match=r"default bundle default can't be used: bundle\.toml: Invalid value"):
        await make(registry, tmp_path, opened, clock).start()


async def test_a_bundle_that_opens_slowly_delays_only_its_own_turns(
    registry: PostgresBundles, tmp_path: Path, opened: Opened
) -> None:
    write(tmp_path, "slow")
    write(tmp_path, "fast", name="other")
    folders = BundleFolders(tmp_path, {}, "default")
    library = BundleLibrary(registry, folders, opened.open_kit, BASE, scan_s=0.02)
    running = asyncio.create_task(library.run())

    async def use_slow() -> BundleKit:
        async with library.use("desk", None) as kit:
            return kit

    async with library.use("other", None), library.use(None, None):
        waiting = asyncio.create_task(use_slow())
        await asyncio.sleep(0.1)
        # Nothing is published by halves: what other workers published before remains listed.
        assert not waiting.done() and await registry.load_listed() == (BUILT_IN,)
        opened.slow.set()
        assert (await waiting).bundle_id == "desk"
    await until(lambda: list_ids(registry), ["default", "desk", "other"])

    running.cancel()
    await asyncio.wait({running})
    await library.close()
    assert opened.open == []


async def test_a_bundle_that_opens_slowly_after_a_start_does_not_hide_the_others(
    registry: PostgresBundles, tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat_proc.bundles.versions.FIRST_PUBLISH_S", 0.05)
    write(tmp_path, "slow")
    write(tmp_path, "fast", name="other")
    library = BundleLibrary(registry, BundleFolders(tmp_path, {}, "default"), opened.open_kit, BASE, scan_s=0.02)
    running = asyncio.create_task(library.run())

    await until(lambda: list_ids(registry), ["default", "other"])
    opened.slow.set()
    await until(lambda: list_ids(registry), ["default", "desk", "other"])

    running.cancel()
    await asyncio.wait({running})
    await library.close()


async def test_a_new_bundle_is_not_listed_before_it_is_open(
    registry: PostgresBundles, tmp_path: Path, opened: Opened
) -> None:
    library = BundleLibrary(registry, BundleFolders(tmp_path, {}, "default"), opened.open_kit, BASE, scan_s=0.02)
    running = asyncio.create_task(library.run())
    await until(lambda: list_ids(registry), ["default"])
    write(tmp_path, "slow")
    await wait_until(lambda: "desk" in library._adopting)
    tries = opened.tries
    write(tmp_path, "fast", name="other")

    await until(lambda: list_ids(registry), ["default", "other"])
    assert opened.tries == tries + 1
    opened.slow.set()
    await until(lambda: list_ids(registry), ["default", "desk", "other"])

    running.cancel()
    await asyncio.wait({running})
    await library.close()


async def test_a_bundle_can_be_removed_while_it_opens(
    registry: PostgresBundles, tmp_path: Path, opened: Opened
) -> None:
    write(tmp_path, "slow")
    folders = BundleFolders(tmp_path, {}, "default")
    library = BundleLibrary(registry, folders, opened.open_kit, BASE, scan_s=0.02)
    running = asyncio.create_task(library.run())
    await wait_until(lambda: "desk" in library._adopting)
    adopting = library._adopting["desk"]
    (tmp_path / "desk" / "bundle.toml").unlink()
    (tmp_path / "desk").rmdir()
    await wait_until(lambda: "desk" not in library._found)
    opened.slow.set()
    await adopting
    await until(lambda: list_ids(registry), ["default"])

    running.cancel()
    await asyncio.wait({running})
    await library.close()
    assert opened.open == []


async def until(ask: Callable[[], Awaitable[list[str]]], wanted: list[str]) -> None:
    async with asyncio.timeout(30):
        while await ask() != wanted:
            pass


async def list_ids(registry: PostgresBundles) -> list[str]:
    return [listing.id for listing in await registry.load_listed()]


async def test_reloads_under_load_cost_no_turn(library: Library, tmp_path: Path, opened: Opened) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    write(tmp_path, "0")
    await library.refresh()
    ended = 0

    async def run_turn() -> None:
        nonlocal ended
        async with library.use("desk", None) as begun:
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0.01 * chance.random())
                async with library.use("desk", begun.digest) as resumed:
                    assert resumed.digest == begun.digest and resumed.digest in {
                        bundle.digest for bundle in opened.open
                    }
        ended += 1

    async def change() -> None:
        for n in range(40):
            write(tmp_path, str(n))
            await library.refresh()
            if chance.random() < 0.5:
                await library.refresh()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(change())
        for _ in range(200):
            tasks.create_task(run_turn())
            await asyncio.sleep(0.005 * chance.random())

    assert ended == 200, seed
    await settle(library)
    assert opened.texts == ["39"]


async def test_a_turn_cancelled_while_its_version_opens_leaves_nothing_open(
    library: Library, tmp_path: Path, opened: Opened
) -> None:
    write(tmp_path, "first")
    await library.refresh()
    stored = next(bundle for bundle in opened.open if bundle.id == "desk")
    (tmp_path / "desk" / "bundle.toml").unlink()
    (tmp_path / "desk").rmdir()
    await library.refresh()

    async def use() -> None:
        async with library.use("desk", stored.digest):
            await asyncio.sleep(60)

    for delay in range(12):
        turns = [asyncio.create_task(use()) for _ in range(3)]
        await asyncio.sleep(delay * 0.002)
        turns[0].cancel()
        await asyncio.sleep(0)
        for turn in turns[1:]:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        await library.refresh()
        await wait_until(lambda: opened.texts == [])

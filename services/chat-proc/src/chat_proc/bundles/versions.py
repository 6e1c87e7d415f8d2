"""The bundles that a worker runs: it scans for new content, publishes what it finds, and keeps each version open while
it is the newest or a turn uses it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

from chat_proc.bundles.bundle import Bundle, unpack
from chat_proc.bundles.folders import BundleFolders, Found
from chat_proc.bundles.host.environments import INSTALL_TIMEOUT_S
from chat_proc.bundles.manifest import BadBundle
from chat_proc.catalog.mcp_servers import TOKEN_TIMEOUT_S
from everturn.bundles.registry import DEFAULT_BUNDLE, RENEW_S, BundleListing, BundleRegistry, OperationListing
from everturn.core.cancellation import GRACE_S, end_tasks
from everturn.core.errors import EverturnError, Invalid, NotFound, Unavailable
from everturn.core.loops import guarded
from everturn.core.metrics import BUNDLES, BUNDLES_REFUSED

_log = structlog.get_logger(__name__)

SCAN_S: Final = 2.0
"""Between two scans for new content. A changed folder is loaded at the second scan that finds it the same."""
RETRY_S: Final = 60.0
"""After this time, a version that could not be opened is tried again, because the cause may lie outside of it."""
STORE_RETRY_S: Final = 15.0
"""After this time, a version that could not be stored, because the registry did not respond, is opened again."""
OPEN_S: Final = 2 * INSTALL_TIMEOUT_S + 120.0
"""Time limit for opening a version. It covers two installations of its libraries: one by another worker that was cut
short, and then its own. An installation that fails has failed for all workers that wait for it."""
CLOSE_S: Final = TOKEN_TIMEOUT_S + 3 * GRACE_S
"""Time limit for closing a version: tokens that were requested are stored, and what is left is cancelled twice."""
CLOSE_ALL_S: Final = CLOSE_S + 3 * GRACE_S
"""Time limit for closing all versions."""
STOP_S: Final = 2 * GRACE_S + CLOSE_ALL_S + GRACE_S
"""What a worker needs after DRAIN_TIMEOUT_S: to end turns that ignore their cancellation, to close all versions, and to
close the rest. Deployments give workers the sum to stop: a test compares deploy/ and the documents with it."""
FIRST_PUBLISH_S: Final = 5.0
"""How long a worker that has just started waits for bundles that open, before it publishes the others and is ready."""
MAX_ERROR_CHARS: Final = 4_000
"""Of the error of one bundle, and of each of its problems, as operators see them."""
FIRST_SCAN_S: Final = 60.0
"""How long a turn waits for the first scan of a worker that has just started."""

_NOT_LOADED: Final = "It is not loaded yet."

Kit = TypeVar("Kit")
"""What the turns of a version run with."""


class BundleUnavailable(EverturnError):
    """No worker can run this bundle."""


@dataclass(slots=True, eq=False)
class _Version(Generic[Kit]):
    """One version with what was opened for it. The library is one user of the newest version, each turn another."""

    bundle: Bundle
    users: int = 0
    kit: Kit | None = None
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class _Refusal:
    digest: str
    why: str
    again_s: float


def _describe_failure(error: Exception | None) -> str:
    return f"It could not be described ({type(error).__name__}). The log of the worker has the details."


class BundleLibrary(Generic[Kit]):
    """Opens bundles with `open_kit`, which raises Invalid if a version can't be used. `run` is a task of its own.

    Turns that are only to be ended need nothing of their bundle, so they get `base`. `list_problems` says what does not
    work in a version that can be used, and `list_operations` what programs can call of it without a turn.
    """

    def __init__(
        self,
        registry: BundleRegistry,
        folders: BundleFolders,
        open_kit: Callable[[Bundle], AbstractAsyncContextManager[Kit]],
        base: Kit,
        *,
        default_bundle: str = DEFAULT_BUNDLE,
        list_problems: Callable[[Kit], Sequence[str]] = lambda _: (),
        list_operations: Callable[[Kit], Sequence[OperationListing]] = lambda _: (),
        scan_s: float = SCAN_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base = base
        self._registry = registry
        self._folders = folders
        self._open_kit = open_kit
        self._default = default_bundle
        self._list_problems = list_problems
        self._list_operations = list_operations
        self._scan_s = scan_s
        self._monotonic = monotonic
        self._found: Mapping[str, Found] = {}
        self._adopting: dict[str, asyncio.Task[None]] = {}
        self._versions: dict[tuple[str, str], _Version[Kit]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._current: dict[str, _Version[Kit]] = {}
        self._refused: dict[str, _Refusal] = {}
        self._errors: dict[str, str] = {}
        """The last error of each id, so that it is logged once."""
        self._published: tuple[tuple[BundleListing, ...], float] = ((), -RENEW_S)
        self._has_scanned = asyncio.Event()
        self._has_published = asyncio.Event()

    async def start(self) -> None:
        """Check that the bundles can be read, and that the default one can be used, at least in the version that
        is stored. Raises BadBundle."""
        self._found = await asyncio.to_thread(self._folders.scan)
        await self._adopt(self._default, self._found[self._default])
        refusal = self._refused.get(self._default)
        # The worker starts without the registry, just as it continues if the registry becomes unavailable later.
        is_outage = refusal is not None and refusal.digest and not refusal.why
        if refusal is not None and not is_outage and self._default not in self._current:
            raise BadBundle(f"The default bundle {self._default} can't be used: {refusal.why or _NOT_LOADED}")

    async def run(self) -> None:
        """Refresh until cancelled. A version that opens or closes slowly delays no other."""
        wait_s = FIRST_PUBLISH_S
        while True:
            with guarded("bundles"):
                try:
                    await self.refresh(wait_s)
                except Unavailable as error:
                    _log.warning("Could not publish the bundles", error=str(error))
            wait_s = 0.0
            await asyncio.sleep(self._scan_s)

    async def wait_published(self) -> None:
        """Wait until `run` has published, at most twice FIRST_PUBLISH_S. So clients can name the bundles of a worker
        that is ready."""
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * FIRST_PUBLISH_S):
                await self._has_published.wait()

    async def refresh(self, wait_s: float = OPEN_S) -> None:
        """Begin to open what has changed, wait for it at most `wait_s`, begin to close what is not used any more, and
        publish what is open. Raises Unavailable if the registry does not answer."""
        await self._scan()
        if self._adopting:
            await asyncio.wait(self._adopting.values(), timeout=wait_s)
        self._begin_closing()
        await self._publish()

    @asynccontextmanager
    async def use(self, bundle_id: str | None, digest: str | None) -> AsyncGenerator[Kit]:
        """The kit of a turn, which stays open until the end of the context. `bundle_id` is None for the default bundle;
        `digest` is that with which the turn began, None for a new one.

        Of a version that is not here, the content comes from the registry. A turn whose version is gone or can't be
        opened continues with the newest one. Raises BundleUnavailable if there is none, and Unavailable.
        """
        try:
            async with asyncio.timeout(FIRST_SCAN_S):
                await self._has_scanned.wait()
        except TimeoutError as error:
            raise Unavailable("The bundles are not loaded yet.") from error
        chosen = self._default if bundle_id in (None, DEFAULT_BUNDLE) else bundle_id
        if chosen not in self._current and (adopting := self._adopting.get(chosen)) is not None:
            await asyncio.wait({adopting}, timeout=OPEN_S)
        version, kit = await self._find(chosen, digest)
        try:
            yield kit
        finally:
            version.users -= 1

    def list_operated(self) -> tuple[str, ...]:
        """The ids of the bundles whose newest version is open here and has operations."""
        return tuple(
            bundle_id
            for bundle_id, version in self._current.items()
            if version.kit is not None and self._list_operations(version.kit)
        )

    async def close(self) -> None:
        """Close all versions, in at most CLOSE_ALL_S."""
        for adopting in self._adopting.values():
            adopting.cancel()
        for version in self._versions.values():
            version.users = 0
        await self._close_unused(*self._adopting.values())

    async def _scan(self) -> None:
        """Read what has changed, and begin to open it."""
        try:
            self._found = await asyncio.to_thread(self._folders.scan)
        except BadBundle as error:
            self._report("", error.detail)
        for bundle_id in self._found.keys() - self._adopting.keys():
            self._begin_adoption(bundle_id, self._found[bundle_id])
        gone = [each for each, found in self._found.items() if found.bundle is None and not found.continues]
        for bundle_id in self._current.keys() & gone | self._current.keys() - self._found.keys():
            self._current.pop(bundle_id).users -= 1
            _log.info("Removed a bundle", bundle_id=bundle_id)
        self._has_scanned.set()

    def _begin_adoption(self, bundle_id: str, found: Found) -> None:
        """Begin to open the newest content if it is not the current version and was not refused a moment ago."""
        current, refusal = self._current.get(bundle_id), self._refused.get(bundle_id)
        digest = "" if found.bundle is None else found.bundle.digest
        is_current = current is not None and digest in ("", current.bundle.digest)
        if is_current or (found.bundle is None and not found.continues):
            self._refused.pop(bundle_id, None)
            refusal = None
        elif refusal is None or refusal.digest != digest or self._monotonic() > refusal.again_s:
            self._adopting[bundle_id] = asyncio.create_task(self._adopt(bundle_id, found), name="open bundle")
            return
        self._report(bundle_id, found.error or (refusal.why if refusal else ""))

    async def _adopt(self, bundle_id: str, found: Found) -> None:
        """Open the newest content. If it can't be used or is not there yet, and nothing serves yet, as after a restart,
        open the version that is stored."""
        bundle, why = found.bundle, found.error
        digest = "" if bundle is None else bundle.digest
        try:
            if bundle is not None:
                why = await self._try_serve(bundle)
            if why or bundle is None:
                self._refused[bundle_id] = _Refusal(digest, why, self._monotonic() + RETRY_S)
                if bundle_id not in self._current:
                    await self._try_restore(bundle_id, digest)
            else:
                self._refused.pop(bundle_id, None)
        except Unavailable as error:
            self._refused.pop(bundle_id, None)
            if digest:
                self._refused[bundle_id] = _Refusal(digest, "", self._monotonic() + STORE_RETRY_S)
            _log.warning("Could not store or load a bundle", bundle_id=bundle_id, error=str(error))
        self._adopting.pop(bundle_id, None)
        # It can have been removed meanwhile.
        if (newest := self._found.get(bundle_id)) is not None:
            refusal = self._refused.get(bundle_id)
            self._report(bundle_id, newest.error or (refusal.why if refusal else ""))

    async def _try_serve(self, bundle: Bundle) -> str:
        """Open a version, store it, and let it serve. Returns why it can't be used, empty if it can. Raises
        Unavailable."""
        with guarded("bundle_open", health=None, passing=(Unavailable,), bundle_id=bundle.id) as guard:
            try:
                version, _ = await self._acquire(bundle)
                await self._make_current(version)
            except Invalid as error:
                return error.detail or str(error)
            return ""
        return f"It could not be opened ({type(guard.error).__name__}). The log of the worker has the details."

    async def _try_restore(self, bundle_id: str, refused: str) -> None:
        """Let the version serve that is stored, with what the operator sets now, unless it is the refused one. Raises
        Unavailable."""
        why = "It could not be read."
        with guarded("bundle_restore", health=None, passing=(Unavailable,), bundle_id=bundle_id):
            try:
                stored = await self._load(bundle_id, None)
                bundle = self._folders.override(stored)
                if refused in (stored.digest, bundle.digest):
                    return
                why = await self._try_serve(bundle)
            except NotFound:
                return
            except Invalid as error:
                why = error.detail or str(error)
        if why:
            _log.warning("The stored version of a bundle can't be used", bundle_id=bundle_id, why=why)
        else:
            _log.warning("A bundle continues with its stored version", bundle_id=bundle_id)

    async def _make_current(self, version: _Version[Kit]) -> None:
        bundle = version.bundle
        try:
            await self._registry.store(await asyncio.to_thread(bundle.pack))
        except BaseException:
            version.users -= 1
            raise
        if (previous := self._current.get(bundle.id)) is not None:
            previous.users -= 1
        self._current[bundle.id] = version
        _log.info("Loaded a bundle", bundle_id=bundle.id, digest=bundle.digest[:12], files=len(bundle.files))

    def _report(self, bundle_id: str, error: str) -> None:
        error = error[:MAX_ERROR_CHARS]
        if error and self._errors.get(bundle_id) != error:
            BUNDLES_REFUSED.inc()
            _log.error("A bundle can't be used; its previous version continues", bundle_id=bundle_id, error=error)
        elif not error and self._errors.get(bundle_id):
            _log.info("A bundle can be used again", bundle_id=bundle_id)
        self._errors[bundle_id] = error

    async def _publish(self) -> None:
        """Publish what has changed, and all of it every RENEW_S."""
        last, published_s = self._published
        opening = self._adopting.keys() - self._current.keys()
        listings = tuple(self._list(bundle_id) for bundle_id in sorted(self._found.keys() - opening))
        BUNDLES.labels("ready").set(len(self._current))
        BUNDLES.labels("refused").set(sum(bool(self._errors.get(bundle_id)) for bundle_id in self._found))
        now_s = self._monotonic()
        if listings != last or now_s - published_s >= RENEW_S:
            withdrawn = [
                listing.id
                for listing in last
                if listing.id not in self._found or (listing.digest and listing.id not in self._current)
            ]
            with guarded("bundles_publish", health=None, passing=(Unavailable,)) as guard:
                await self._registry.publish(listings, withdrawn=withdrawn)
            if guard.error is not None:
                await self._publish_each(listings, withdrawn)
            self._published = listings, now_s
            self._has_published.set()

    async def _publish_each(self, listings: Sequence[BundleListing], withdrawn: Sequence[str]) -> None:
        """Publish one by one, because one of them can't be stored: that one only with its id, its roles and an error.
        Raises Unavailable."""
        for listing in listings:
            with guarded("bundle_publish", health=None, passing=(Unavailable,), bundle_id=listing.id) as guard:
                await self._registry.publish([listing])
            if guard.error is not None:
                brief = BundleListing(
                    listing.id,
                    listing.digest,
                    listing.id,
                    roles=listing.roles,
                    is_default=listing.is_default,
                    is_ready=listing.is_ready,
                    error=_describe_failure(guard.error),
                )
                with guarded("bundle_publish", health=None, passing=(Unavailable,), bundle_id=listing.id):
                    await self._registry.publish([brief])
        await self._registry.publish([], withdrawn=withdrawn)

    def _list(self, bundle_id: str) -> BundleListing:
        error, current = self._errors.get(bundle_id, ""), self._current.get(bundle_id)
        if current is None:
            return BundleListing(bundle_id, "", bundle_id, is_ready=False, error=error or _NOT_LOADED)
        kit, list_bundle = current.kit, partial(current.bundle.list, is_default=bundle_id == self._default)
        if kit is None:
            return list_bundle(error=error)
        with guarded("bundle_list", health=None, bundle_id=bundle_id) as guard:
            problems = [problem[:MAX_ERROR_CHARS] for problem in self._list_problems(kit)]
            return list_bundle(error=error, problems=problems, operations=self._list_operations(kit))
        return list_bundle(error=f"{error} {_describe_failure(guard.error)}".lstrip())

    async def _find(self, bundle_id: str, digest: str | None) -> tuple[_Version[Kit], Kit]:
        current = self._current.get(bundle_id)
        if current is not None and digest in (None, current.bundle.digest):
            return await self._acquire(current.bundle)
        try:
            return await self._acquire(await self._load(bundle_id, digest))
        except (NotFound, Invalid) as error:
            if current is None and digest is not None:
                return await self._find(bundle_id, None)
            if current is None:
                raise BundleUnavailable(f"{bundle_id}: {error.detail or error}") from error
            _log.warning(
                "A turn continues with the newest version of its bundle",
                bundle_id=bundle_id,
                digest=digest,
                why=str(error),
            )
            return await self._acquire(current.bundle)

    async def _load(self, bundle_id: str, digest: str | None) -> Bundle:
        """Raises NotFound, Unavailable, BadBundle."""
        if digest is not None and (opened := self._versions.get((bundle_id, digest))) is not None:
            return opened.bundle
        stored = await self._registry.load(bundle_id, digest)
        return await asyncio.to_thread(unpack, stored)

    async def _acquire(self, bundle: Bundle) -> tuple[_Version[Kit], Kit]:
        """The version of this bundle with one more user, and its kit, opened if it is not yet. Raises Invalid."""
        version = self._versions.setdefault((bundle.id, bundle.digest), _Version(bundle))
        version.users += 1
        try:
            async with version.opening:
                if version.kit is None:
                    version.kit = await self._open(version)
                return version, version.kit
        except BaseException:
            version.users -= 1
            raise

    async def _open(self, version: _Version[Kit]) -> Kit:
        try:
            async with AsyncExitStack() as resources, asyncio.timeout(OPEN_S):
                kit = await resources.enter_async_context(self._open_kit(version.bundle))
                version.resources = resources.pop_all()
                return kit
        except TimeoutError as error:
            raise BadBundle(f"It was not ready after {OPEN_S:.0f} s.") from error

    async def _close_unused(self, *cancelled: asyncio.Task[None]) -> None:
        self._begin_closing()
        ending = {*self._closing, *cancelled}
        try:
            if ending:
                await asyncio.wait(ending, timeout=CLOSE_S + GRACE_S)
        finally:
            await end_tasks(*ending)

    def _begin_closing(self) -> None:
        for key, version in [*self._versions.items()]:
            if not version.users:
                del self._versions[key]
                closing = asyncio.create_task(self._close(version), name="close bundle")
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def _close(self, version: _Version[Kit]) -> None:
        with guarded("bundle_close", health=None, bundle_id=version.bundle.id):
            # The lock, because it may still be opening.
            async with asyncio.timeout(CLOSE_S), version.opening:
                await version.resources.aclose()

"""Executes operations of bundles for programs and widgets, beside the turns of this worker and in none of their
slots."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

import structlog

from chat_proc.agent.kit import BundleKit
from chat_proc.bundles.versions import BundleLibrary, BundleUnavailable
from everturn.bundles.operations import OperationQueue, OperationReply, OperationRequest
from everturn.core.cancellation import Ran, end_tasks, run_until
from everturn.core.errors import EverturnError, Invalid, Unavailable
from everturn.core.loops import guarded
from everturn.core.metrics import BUNDLE_OPERATION_SECONDS

_log = structlog.get_logger(__name__)

MAX_RUNNING: Final = 8
"""Operations that a worker executes at once."""
MAX_RUNNING_OF_BUNDLE: Final = 4
"""Of one bundle, so that one whose operations hang leaves places to others."""
LISTEN_S: Final = 1.0
"""How long one wait for requests lasts: after it the worker listens for the bundles that it has then."""
PAUSE_S: Final = 1.0
"""After an error of Redis."""
STARTS_WITHIN_S: Final = 5.0
"""A version of a bundle that is not open yet is opened within this time."""


class OperationRunner:
    """Takes requests for the bundles that are open here. `run` is a task of its own."""

    def __init__(self, queue: OperationQueue, bundles: BundleLibrary[BundleKit]) -> None:
        self._queue = queue
        self._bundles = bundles
        self._running: dict[asyncio.Task[None], str] = {}
        self._changed = asyncio.Event()
        self._is_draining = False

    def drain(self) -> None:
        """Take no more requests; `run` returns when those that were taken have ended."""
        self._is_draining = True
        self._changed.set()

    async def run(self) -> None:
        """Execute requests until drained."""
        try:
            turn = 0
            while not self._is_draining:
                turn += 1
                with guarded("bundle_operations") as guard:
                    await self._run_next(self._choose(turn))
                if guard.error is not None:
                    await asyncio.sleep(PAUSE_S)
            if self._running:
                await asyncio.wait(self._running)
        finally:
            await end_tasks(*self._running)

    def _choose(self, turn: int) -> Sequence[str]:
        """The bundles whose requests can be executed now, each time another one first: Redis looks at them in order."""
        if len(self._running) >= MAX_RUNNING:
            return ()
        running = Counter(self._running.values())
        free = [each for each in self._bundles.list_operated() if running[each] < MAX_RUNNING_OF_BUNDLE]
        first = turn % len(free) if free else 0
        return free[first:] + free[:first]

    async def _run_next(self, bundle_ids: Sequence[str]) -> None:
        """Begin to execute the next request, if one comes soon."""
        if not bundle_ids:
            await self._wait_changed()
            return
        try:
            request = await self._queue.take(bundle_ids, timeout_s=LISTEN_S)
        except (Unavailable, Invalid) as error:
            _log.warning("Could not take an operation of a bundle", error=str(error))
            await asyncio.sleep(PAUSE_S)
            return
        if request is not None:
            task = asyncio.create_task(self._execute(request), name="operation of a bundle")
            self._running[task] = request.bundle_id
            task.add_done_callback(self._forget)

    async def _wait_changed(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(LISTEN_S):
                await self._changed.wait()
        except TimeoutError:
            return

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._changed.set()

    async def _execute(self, request: OperationRequest) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        reply = OperationReply("lost", detail="The worker failed.")
        try:
            with guarded("bundle_operation", bundle_id=request.bundle_id):
                ended = await run_until(self._wait_cancelled(request), self._call(request))
                reply = ended.value if isinstance(ended, Ran) else OperationReply("cancelled")
        except asyncio.CancelledError:
            reply = OperationReply("lost", detail="The worker was stopped.")
            raise
        finally:
            seconds = loop.time() - began_s
            BUNDLE_OPERATION_SECONDS.labels(reply.outcome).observe(seconds)
            _log.info(
                "Executed an operation of a bundle",
                bundle_id=request.bundle_id,
                operation=request.name,
                request_id=request.request_id,
                outcome=reply.outcome,
                why=reply.detail,
                seconds=round(seconds, 3),
            )
            if reply.outcome != "cancelled":
                await self._try_reply(request, reply)

    async def _call(self, request: OperationRequest) -> OperationReply:
        try:
            async with self._bundles.use(request.bundle_id, None) as kit:
                if kit.operations is None:
                    return OperationReply("unknown")
                return await kit.operations.execute(request)
        except (BundleUnavailable, Unavailable) as error:
            return OperationReply("unavailable", detail=error.detail)

    async def _wait_cancelled(self, request: OperationRequest) -> None:
        """Return when nobody waits for the request any more. While Redis does not answer, this is not known."""
        try:
            if await self._queue.wait_cancelled(request.request_id, timeout_s=request.timeout_s + STARTS_WITHIN_S):
                return
        except Unavailable:
            _log.warning("Could not wait for the cancellation of an operation", request_id=request.request_id)
        await asyncio.Event().wait()

    async def _try_reply(self, request: OperationRequest, reply: OperationReply) -> None:
        try:
            await self._queue.reply(request.request_id, reply)
        except EverturnError as error:
            _log.warning("Could not reply to an operation", request_id=request.request_id, error=str(error))

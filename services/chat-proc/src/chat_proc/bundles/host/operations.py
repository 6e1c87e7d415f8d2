"""The operations of a version of a bundle: methods of its workflow that programs and widgets call without a turn.

They run in a process of their own, apart from the one that serves turns: whatever an operation does, no turn notices.
It is started for the first request, and ended when there was none for IDLE_S.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from pydantic_core import to_json

from chat_proc.bundles.host.host import BundleHost
from chat_proc.bundles.host.host_process import HostLost, HostUnavailable
from everturn.bundles.operations import OperationReply, OperationRequest
from everturn.bundles.registry import OperationListing
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError, Invalid
from everturn.core.logging import Redactor
from everturn.core.loops import guarded
from everturn_sdk.protocol import MAX_OPERATION_RESULT_BYTES, Ended, OperationContext, read_content

IDLE_S: Final = 300.0
"""The process ends so long after the last request: it has about 40 MB."""
RETRY_S: Final = 10.0
"""After this time a process that could not be started is started again."""


class BundleOperations:
    """`open_host` starts the process. `close` ends it."""

    def __init__(
        self,
        listings: Sequence[OperationListing],
        open_host: Callable[[], AbstractAsyncContextManager[BundleHost]],
        *,
        idle_s: float = IDLE_S,
    ) -> None:
        self.listings = tuple(listings)
        self._open_host = open_host
        self._idle_s = idle_s
        self._ready: asyncio.Future[BundleHost] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._is_used = asyncio.Event()

    async def execute(self, request: OperationRequest) -> OperationReply:
        """Execute a request within its time limit, at most once unless a repetition does no harm. What the bundle does
        wrong is in the reply."""
        listing = next((each for each in self.listings if each.name == request.name), None)
        if listing is None:
            return OperationReply("unknown")
        if not listing.is_open_to(request.principal):
            return OperationReply("forbidden")
        is_sent = False
        self._requests += 1
        self._is_used.set()
        try:
            async with asyncio.timeout(min(request.timeout_s, listing.timeout_s)):
                host = await self._get_host()
                is_sent = True
                ended, content = await host.operate(
                    request.name,
                    request.arguments,
                    _describe(request),
                    is_repeatable=listing.effect in ("pure", "idempotent"),
                )
            return await _read(ended, content, host.redactor)
        except TimeoutError:
            return OperationReply("timeout" if is_sent else "unavailable")
        except (HostUnavailable, Invalid) as error:
            return OperationReply("unavailable", detail=error.detail)
        except HostLost as error:
            return OperationReply("lost", detail=error.detail)
        finally:
            self._requests -= 1
            self._is_used.set()

    async def close(self) -> None:
        await end_tasks(*self._serving)

    async def _get_host(self) -> BundleHost:
        """The process, started if there is none. A request that gives up does not end the start."""
        ready = self._ready
        if ready is None:
            ready = self._ready = asyncio.get_running_loop().create_future()
            serving = asyncio.create_task(self._serve(ready), name="operations of a bundle")
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        await asyncio.wait({ready})
        return ready.result()

    async def _serve(self, ready: "asyncio.Future[BundleHost]") -> None:
        try:
            with guarded("operations_process", health=None):
                try:
                    async with self._open_host() as host:
                        ready.set_result(host)
                        await self._wait_idle()
                        # Before anything is awaited, so that the next request starts another process.
                        self._ready = None
                except (EverturnError, OSError) as error:
                    if ready.done():
                        raise
                    why = error.detail if isinstance(error, EverturnError) else str(error)
                    ready.set_exception(HostUnavailable(f"It could not be started: {why}"))
                    await asyncio.sleep(RETRY_S)
        finally:
            if self._ready is ready:
                self._ready = None
            if not ready.done():
                ready.set_exception(HostUnavailable("It could not be started."))
            # It may be that nobody waits for it.
            ready.exception()

    async def _wait_idle(self) -> None:
        while True:
            self._is_used.clear()
            try:
                async with asyncio.timeout(None if self._requests else self._idle_s):
                    await self._is_used.wait()
            except TimeoutError:
                # A request can have come since the time was over.
                if not self._requests:
                    return


def _describe(request: OperationRequest) -> OperationContext:
    about = request.principal
    return OperationContext(
        request_id=request.request_id,
        tenant=about.tenant,
        project=about.project,
        user_id=about.user_id,
        roles=tuple(sorted(role.value for role in about.roles)),
    )


async def _read(ended: Ended, content: bytes, redactor: Redactor) -> OperationReply:
    """The reply to what the process has sent, which can be anything."""
    match ended.status:
        case "ok" if len(content) > MAX_OPERATION_RESULT_BYTES:
            return OperationReply("failed", detail=f"Its result has {len(content)} bytes.")
        case "ok":
            return await asyncio.to_thread(_encode, content, redactor)
        case "notice":
            return OperationReply("refused", detail=redactor.redact(ended.error))
        case "invalid" if ended.fields:
            fields = tuple((each.field, redactor.redact(each.message)) for each in ended.fields)
            return OperationReply("invalid", fields=fields)
        case "invalid":
            return OperationReply("unknown")
        case "raised":
            return OperationReply("failed", detail=redactor.redact(ended.error))


def _encode(content: bytes, redactor: Redactor) -> OperationReply:
    try:
        value = read_content(content)
    except ValueError as error:
        return OperationReply("failed", detail=f"Its result is not JSON: {error}.")
    return OperationReply("ok", to_json(redactor.redact_value(value), inf_nan_mode="null"))

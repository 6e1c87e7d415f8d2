"""The process of a bundle's code, seen from the worker: starting it when a call needs it, and replacing it.

After a process was lost, the next call starts another one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import structlog
from pydantic_core import to_json

from chat_proc.bundles.host.environments import REQUIREMENTS
from chat_proc.bundles.host.host_process import (
    BundleCode,
    CallHandler,
    HostLost,
    HostOptions,
    HostProcess,
    HostUnavailable,
    RunHandler,
    RunRaised,
    make_home,
)
from chat_proc.bundles.host.processes import ProcessLimits, claim_uid
from chat_proc.bundles.host.section import MIB
from chat_proc.bundles.host.watchdog import remove_tree
from everturn.core.cancellation import acquire_in_thread
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.core.metrics import BUNDLE_HOSTS_ENDED, BUNDLE_HOSTS_RUNNING
from everturn_sdk.protocol import (
    BundleDescription,
    CallContext,
    Ended,
    Function,
    Hook,
    OperationContext,
    RunPayload,
    read_content,
)

_log = structlog.get_logger(__name__)

FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 30.0
"""Before a process is started after the second crash in a row, and the longest pause after more of them."""
MAX_PAUSE_WAIT_S: Final = 5.0
"""A call waits so long for the end of such a pause; otherwise it is not made."""
STEADY_S: Final = 60.0
"""A process that ran for so long has ended the row of crashes."""
MAX_CRASHES_PER_TURN: Final = 3
_MAX_COUNTED: Final = 1_000
"""Pairs of turn and tool whose crashes are counted; older ones are forgotten."""


class BundleHost:
    """Keeps one process for a bundle, started again when it is needed. Opened by `open_bundle_host`."""

    def __init__(
        self, code: BundleCode, options: HostOptions, python: Path, folder: Path, home: Path, uid: int | None
    ) -> None:
        section = code.section
        self._code = code
        self._options = options
        self._places = python, folder, home
        self._limits = ProcessLimits(
            memory_bytes=min(section.memory_mib, options.memory_max_mib) * MIB,
            open_files=section.open_files,
            processes=section.processes,
            disk_bytes=section.disk_mib * MIB,
            uid=uid,
        )
        self.redactor = Redactor(code.secrets.values())
        self.description = BundleDescription()
        self._expected: BundleDescription | None = None
        self._process: HostProcess | None = None
        self._running: dict[asyncio.Task[None], HostProcess] = {}
        self._starting = asyncio.Lock()
        self._failures = 0
        self._not_before_s = 0.0
        self._crashes: OrderedDict[tuple[str, str], int] = OrderedDict()

    @property
    def bundle_id(self) -> str:
        return self._code.bundle_id

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The hooks of its workflow that observe the agent."""
        return self.description.hooks

    async def open(self) -> None:
        """Start the process for the first time. Raises Invalid with the reason if it does not describe itself."""
        try:
            process = await self._get_process()
        except HostUnavailable as error:
            raise Invalid(error.detail) from None
        self.description = self._expected = process.described.result()

    async def close(self) -> None:
        for process in self._running.values():
            process.end("closed", "the bundle is not used any more")
        if self._running:
            await asyncio.wait(set(self._running))

    async def call(
        self,
        tool_id: str,
        turn_id: str,
        arguments: Mapping[str, Any],
        context: CallContext,
        handler: CallHandler,
        *,
        is_repeatable: bool,
    ) -> tuple[Ended, bytes]:
        """Make a call, once more if its process was lost and it `is_repeatable`. Raises HostUnavailable if it was not
        made, and HostLost if it is unknown what it has done."""
        key = turn_id, tool_id

        async def call_once() -> tuple[Ended, bytes]:
            if self._crashes.get(key, 0) >= MAX_CRASHES_PER_TURN:
                raise HostUnavailable(
                    f"Its calls have ended their process {MAX_CRASHES_PER_TURN} times in this turn, so this turn can't "
                    f"call {tool_id} any more. Continue without it."
                )
            process = await self._get_process()
            try:
                return await process.call(tool_id, turn_id, arguments, context, handler)
            except HostLost:
                self._crashes[key] = self._crashes.pop(key, 0) + 1
                while len(self._crashes) > _MAX_COUNTED:
                    self._crashes.popitem(last=False)
                raise

        return await _repeat_once(call_once, is_repeatable=is_repeatable)

    async def operate(
        self, name: str, arguments: bytes, context: OperationContext, *, is_repeatable: bool
    ) -> tuple[Ended, bytes]:
        """Execute an operation, once more if its process was lost and it `is_repeatable`. Raises HostUnavailable if it
        was not executed, and HostLost if it may have been in part."""

        async def operate_once() -> tuple[Ended, bytes]:
            process = await self._get_process()
            return await process.operate(name, arguments, context)

        return await _repeat_once(operate_once, is_repeatable=is_repeatable)

    async def run_workflow(self, payload: RunPayload, context: CallContext, handler: RunHandler) -> str | None:
        """Execute the workflow once for a turn; returns the text of its answer, None if it leaves that to the agent.
        Raises RunRaised, HostUnavailable if it was not executed, and HostLost if it may have been in part. Unlike a
        call it waits for the end of a pause after crashes: without its workflow a turn can't go on."""
        await asyncio.sleep(max(0.0, self._not_before_s - asyncio.get_running_loop().time()))
        process = await self._get_process()
        ended, content = await process.run_workflow(payload, context, handler)
        if ended.status != "ok":
            raise RunRaised(self.redactor.redact(ended.error))
        try:
            value = await asyncio.to_thread(read_content, content)
        except ValueError as error:
            raise RunRaised(f"its answer is not JSON: {error}") from error
        if value is not None and not isinstance(value, str):
            raise RunRaised("its answer is not a text")
        return None if value is None else await asyncio.to_thread(self.redactor.redact, value)

    async def invoke(self, turn_id: str, function: Function, arguments: Mapping[str, Any]) -> str:
        """Call a function of the workflow that runs for this turn; returns its result as a text. Raises
        HostUnavailable, Invalid."""
        for process in tuple(self._running.values()):
            if (number := process.find_workflow(turn_id)) is not None:
                invoked, content = await process.invoke(number, function, arguments)
                if invoked.error:
                    raise Invalid(invoked.error)
                return await asyncio.to_thread(self._read_text, content)
        raise HostUnavailable("The workflow of this turn does not run any more.")

    def _read_text(self, content: bytes) -> str:
        """What a function of a workflow has returned, as a text without secrets. Raises Invalid."""
        try:
            given = read_content(content)
        except ValueError as error:
            raise Invalid(f"its result is not JSON: {error}") from error
        return self.redactor.redact(given if isinstance(given, str) else to_json(given).decode())

    async def _get_process(self) -> HostProcess:
        """The process that serves calls now, started if there is none. Raises HostUnavailable."""
        process = self._process
        if process is None or not process.is_serving:
            async with self._starting:
                process = await self._start()
        # The call that has started it may have been cancelled since.
        await asyncio.shield(process.described)
        return process

    async def _pause(self) -> None:
        pause_s = self._not_before_s - asyncio.get_running_loop().time()
        if pause_s > MAX_PAUSE_WAIT_S:
            reason = "" if self._process is None else f" The reason: {self._process.end_reason}."
            raise HostUnavailable(
                f"Its process has ended {self._failures} times and starts again in {pause_s:.0f} s.{reason}"
            )
        if pause_s > 0:
            await asyncio.sleep(pause_s)

    async def _start(self) -> HostProcess:
        """The process that another call has started meanwhile, otherwise a new one."""
        if self._process is not None and self._process.is_serving:
            return self._process
        # One replaced process goes on beside the new one; more of them would multiply the memory of the bundle.
        retiring = [process for process in self._running.values() if process.is_retiring]
        for older in retiring[:-1]:
            older.end_replaced()
        # Until the others have left, it is not known how they ended, and their memory is not free.
        left = {task for task, process in self._running.items() if process not in retiring[-1:]}
        if left:
            await asyncio.wait(left)
        await self._pause()
        process = HostProcess(self._code, self._options, self._limits, self.redactor, self._expected)
        task = asyncio.create_task(process.run(*self._places), name=f"host of {self.bundle_id}")
        self._running[task] = process
        self._process = process
        BUNDLE_HOSTS_RUNNING.inc()
        began_s = asyncio.get_running_loop().time()
        task.add_done_callback(lambda done: self._note_end(done, began_s))
        return process

    def _note_end(self, task: asyncio.Task[None], began_s: float) -> None:
        process = self._running.pop(task)
        BUNDLE_HOSTS_RUNNING.dec()
        kind = process.end_kind or "crashed"
        BUNDLE_HOSTS_ENDED.labels(kind).inc()
        if kind == "closed":
            return
        now_s = asyncio.get_running_loop().time()
        if kind != "stuck":
            self._failures = 1 if now_s - began_s > STEADY_S else self._failures + 1
        pause_s = 0.0 if self._failures < 2 else min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._failures - 2))
        self._not_before_s = now_s + pause_s
        _log.warning(
            "The process of a bundle has ended",
            bundle_id=self.bundle_id,
            digest=self._code.digest[:12],
            reason=kind,
            why=process.end_reason,
            failures=self._failures,
            pause_s=pause_s,
        )


@asynccontextmanager
async def open_bundle_host(code: BundleCode, options: HostOptions) -> AsyncGenerator[BundleHost]:
    """The host of a version of a bundle, which has described itself. Raises Invalid if its libraries can't be installed
    or its code can't be loaded, with the reason."""
    requirements = code.files.get(REQUIREMENTS, b"")
    async with options.environments.use(requirements) as python, _open_host(code, options, python) as host:
        yield host


@asynccontextmanager
async def _open_host(code: BundleCode, options: HostOptions, python: Path) -> AsyncGenerator[BundleHost]:
    async with claim_uid(options.uids) as uid:
        # Written and removed in threads: a bundle has up to 16 MiB of files.
        root = await acquire_in_thread(partial(_unpack, code, options.folder, uid), remove_tree)
        try:
            folder, home = _find_places(root, code)
            host = BundleHost(code, options, python, folder, home, uid)
            try:
                await host.open()
                yield host
            finally:
                await host.close()
        finally:
            await asyncio.to_thread(remove_tree, root)


async def _repeat_once(
    attempt: Callable[[], Awaitable[tuple[Ended, bytes]]], *, is_repeatable: bool
) -> tuple[Ended, bytes]:
    """The result of the attempt, or of the second one if the process of the first was lost and it `is_repeatable`.

    Raises as the attempt. If the second one was not made, this is HostLost too: the first may have had an effect.
    """
    try:
        return await attempt()
    except HostLost as error:
        if not is_repeatable:
            raise
        lost = error
    try:
        return await attempt()
    except HostUnavailable as error:
        raise HostLost(f"{lost.detail} It was not repeated: {error.detail}") from error


def _unpack(code: BundleCode, parent: Path | None, uid: int | None) -> str:
    """A new folder with the files of the bundle and an empty home. Raises Invalid, OSError."""
    root = mkdtemp(prefix="everturn-bundle-", dir=parent)
    with ExitStack() as failing:
        failing.callback(remove_tree, root)
        folder, home = _find_places(root, code)
        folder.mkdir(parents=True)
        for name, content in code.files.items():
            file = folder / name
            if not file.resolve().is_relative_to(folder.resolve()):
                raise Invalid(f"{name!r} is not a path in the bundle.")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        # A regular package, so that a module of the same name elsewhere does not hide it.
        (folder / "__init__.py").touch()
        make_home(home, uid)
        if uid is not None:
            Path(root).chmod(0o711)
        failing.pop_all()
    return root


def _find_places(root: str, code: BundleCode) -> tuple[Path, Path]:
    """The folders of the code and of the home."""
    return Path(root) / "code" / code.package, Path(root) / "home"

"""One process of a bundle's code, from its start to its end: calling its tools, running its workflow for turns, and
answering what they ask of the worker.

Whatever the code does, a call ends: with its result, or with HostLost when the process has ended, is blocked or sends
what is no message.
"""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast

import structlog
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from chat_proc.bundles.host.environments import Environments, find_shared_folders
from chat_proc.bundles.host.processes import LineBudget, ProcessLimits, WatchedProcess
from chat_proc.bundles.host.section import MIB, HostSection
from chat_proc.bundles.host.watchdog import TOO_LARGE, remove_tree
from everturn.core.cancellation import answered_within, end_tasks
from everturn.core.errors import EverturnError, Invalid, Unavailable
from everturn.core.logging import Redactor
from everturn.core.loops import guarded
from everturn_sdk.json_size import has_more_values
from everturn_sdk.protocol import (
    INLINE_BYTES,
    MAX_ASKS,
    MAX_CONTENT_VALUES,
    MAX_ERROR_CHARS,
    MAX_REQUESTS,
    MAX_TEXT_CHARS,
    TO_WORKER,
    Answer,
    Ask,
    Begin,
    BundleDescription,
    Call,
    CallContext,
    Cancel,
    Claim,
    Connection,
    Delta,
    Described,
    Ended,
    Event,
    Failed,
    FrameError,
    Function,
    Invoke,
    Invoked,
    Log,
    Operate,
    OperationContext,
    PutArtifact,
    Question,
    Run,
    RunPayload,
    ToWorker,
)

_log = structlog.get_logger(__name__)

START_TIMEOUT_S: Final = 60.0
"""For starting Python and importing the bundle's modules on a busy machine."""
BLOCKED_AFTER_S: Final = 5.0
"""A host whose event loop is blocked for so long is replaced."""
CANCEL_GRACE_S: Final = 5.0
"""How long a function can run after its call was given up, before its process is replaced."""
RETIRE_WITHIN_S: Final = 310.0
"""How long the other calls of a replaced process can take: a little more than the longest time limit of a tool."""
MAX_CALLS: Final = 64
"""Calls of one process at once; more of them wait."""
OPEN_REQUESTS: Final = 2
"""Times the requests that the SDK sends at once: those of a function that was cancelled are still open here."""
WORKFLOW: Final = "workflow"
"""What logs call the tool of a running workflow."""
_EXIT_WAIT_S: Final = 1.0
_MAX_VALUES_ON_LOOP: Final = 4_000
"""Redacting so many values takes 2 ms."""
_MODULE: Final = "everturn_sdk.host"
_SIGNALED: Final = 128


EndKind = Literal["blocked", "closed", "crashed", "disk", "exhausted", "protocol", "start", "stuck"]
"""Why a process has ended: its loop was blocked, its bundle is not used any more, by itself, because of the space that
its files took, because too little memory, files or threads were left, because of what it sent, because it could not
start, or because a function did not end."""


class HostLost(EverturnError):
    """The process of this agent's tools ended during the call."""


class HostUnavailable(Unavailable):
    """The process of this agent's tools does not run."""


class RunRaised(EverturnError):
    """The workflow of this agent raised an exception, which the text describes."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The operator's part. `memory_max_mib` limits what a bundle can ask for; `uids` are users for processes if the
    worker is root; `variables` are added to the environment of the processes, such as those of a proxy."""

    environments: Environments
    memory_max_mib: int = 4096
    uids: range = range(0)
    variables: Mapping[str, str] = field(default_factory=lambda: {})
    folder: Path | None = None
    """For the unpacked files; None for the folder of temporary files."""
    blocked_after_s: float = BLOCKED_AFTER_S
    start_timeout_s: float = START_TIMEOUT_S
    cancel_grace_s: float = CANCEL_GRACE_S


@dataclass(frozen=True, slots=True)
class BundleCode:
    """What a host runs. `described` are the tables `[[tools]]`; `settings` and `secrets` are the bundle's own."""

    bundle_id: str
    digest: str
    files: Mapping[str, bytes]
    described: Sequence[Mapping[str, Any]] = ()
    section: HostSection = field(default_factory=HostSection)
    settings: Mapping[str, Any] = field(default_factory=lambda: {})
    secrets: Mapping[str, str] = field(default_factory=lambda: {}, repr=False)

    @property
    def package(self) -> str:
        """The name under which its folder can be imported."""
        name = re.sub(r"\W", "_", self.bundle_id)
        return name if name.isidentifier() else f"bundle_{name}"


SendDelta = Callable[[Mapping[str, Any], bool], Awaitable[None]]
"""Sends a piece of a reply, and whether it belongs to a field of JSON. It waits while the process does not read."""


class RunHandler(Protocol):
    """What a running workflow asks of the worker."""

    async def ask(self, what: Question, arguments: Mapping[str, Any], send: SendDelta, content: bytes) -> object:
        """The answer, plain JSON values. `send` shows the workflow what comes before it; `content` are the bytes of a
        file. Raises EverturnError: the workflow gets its text."""
        ...


class CallHandler(RunHandler, Protocol):
    """What a running call asks of the worker. It can `ask` for models only, and gets ToolError."""

    def show(self, event: Event) -> None: ...
    async def claim(self, content: bytes) -> list[int]:
        """Raises Invalid."""
        ...

    async def put_artifact(self, request: PutArtifact, content: bytes) -> str:
        """Raises Invalid, Unavailable."""
        ...


@dataclass(slots=True)
class _Running:
    """A call, an operation or a workflow that has not ended. Nobody waits for one that `is_given_up`. An operation asks
    nothing of the worker, so it has no handler."""

    handler: CallHandler | RunHandler | None
    tool_id: str
    turn_id: str
    result: asyncio.Future[tuple[Ended, bytes]]
    requests: dict[asyncio.Task[None], bool] = field(default_factory=dict[asyncio.Task[None], bool])
    """Those that are being answered, and whether each is an Ask."""
    invoked: dict[int, asyncio.Future[tuple[Invoked, bytes]]] = field(
        default_factory=dict[int, "asyncio.Future[tuple[Invoked, bytes]]"]
    )
    """The functions of a workflow that are being called."""
    redacting: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_workflow: bool = False
    is_given_up: bool = False


class HostProcess:
    """One process, from its start to its end."""

    def __init__(
        self,
        code: BundleCode,
        options: HostOptions,
        limits: ProcessLimits,
        redactor: Redactor,
        expected: BundleDescription | None,
    ) -> None:
        """`expected` is what it must offer, because calls are made of what the first process of the bundle offered."""
        self._code = code
        self._options = options
        self._limits = limits
        self._redactor = redactor
        self._expected = expected
        self._connection = Connection(TO_WORKER, self._receive, self._disconnect)
        loop = asyncio.get_running_loop()
        self.described: asyncio.Future[BundleDescription] = loop.create_future()
        """What it offers; HostUnavailable if it could not be loaded. Until then it serves nobody."""
        self._loaded: asyncio.Future[bytes] = loop.create_future()
        """How it describes itself."""
        self._budget = LineBudget(loop.time())
        self._heard = asyncio.Event()
        self._over = asyncio.Event()
        self._calls: dict[int, _Running] = {}
        self._last_number = 0
        self._free = asyncio.Semaphore(MAX_CALLS)
        self.end_kind: EndKind | None = None
        self.end_reason = ""
        self._replaced: tuple[EndKind, str] | None = None
        """Why the process gets no more calls, and ends when those that run have."""

    @property
    def is_serving(self) -> bool:
        return self.end_kind is None and not self.is_replaced and not self._over.is_set()

    @property
    def is_replaced(self) -> bool:
        return self._replaced is not None

    @property
    def is_retiring(self) -> bool:
        """Whether it is replaced, but goes on for the calls that it has."""
        return self.is_replaced and self.end_kind is None

    async def run(self, python: Path, folder: Path, home: Path) -> None:
        """Run the process until it ends by itself or by `end`. `end_kind` and `end_reason` say why it has ended."""
        try:
            with guarded("bundle_host", health=None, bundle_id=self._code.bundle_id) as guard:
                await self._run(python, folder, home)
            if guard.error is not None:
                self.end("start", "the log of the worker has the reason")
        finally:
            self._connection.close()
            self.end("closed", "the worker stops")

    async def _run(self, python: Path, folder: Path, home: Path) -> None:
        try:
            await self._serve(python, folder, home)
        except OSError as error:
            self.end("start", f"it could not be started: {error}")

    async def _serve(self, python: Path, folder: Path, home: Path) -> None:
        environment = {
            **self._options.variables,
            "PATH": f"{python.parent}:{os.defpath}",
            "HOME": str(home),
            "TMPDIR": str(home),
            "LANG": "C.UTF-8",
            "MALLOC_ARENA_MAX": "2",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        shared = find_shared_folders(python)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        kept = WatchedProcess(
            [str(python), "-P", "-m", _MODULE, str(theirs.fileno())],
            folder=home,
            environment=environment,
            limits=self._limits,
            on_line=self._log_output,
            redactor=self._redactor,
            descriptor=theirs.fileno(),
            shown=(*shared, folder.parent, home),
            readable=(*shared, folder.parent, *_find_files(self._options.variables)),
            home=home,
            root=home.parent,
        )
        try:
            async with kept:
                theirs.close()
                await asyncio.get_running_loop().create_connection(lambda: self._connection, sock=ours)
                self._begin(folder)
                await self._watch()
                if self.end_kind is None and await kept.wait(_EXIT_WAIT_S):
                    if kept.status == TOO_LARGE:
                        limit_mib = self._limits.disk_bytes // MIB
                        self.end("disk", f"its files took more than {limit_mib} MiB, or were too many")
                    self.end("crashed", _explain_status(kept.status))
                self.end("crashed", "it closed its connection")
            if self.end_kind == "disk":
                await asyncio.to_thread(make_home, home, self._limits.uid)
        finally:
            theirs.close()
            self._connection.close()
            ours.close()

    async def call(
        self, tool_id: str, turn_id: str, arguments: Mapping[str, Any], context: CallContext, handler: CallHandler
    ) -> tuple[Ended, bytes]:
        """The end of the call and its content. Raises HostUnavailable if it was not made, and HostLost if it is unknown
        what it has done."""
        encoded = to_json(arguments, bytes_mode="base64")
        running = _Running(handler, tool_id, turn_id, asyncio.get_running_loop().create_future())
        call = Call(number=0, tool_id=tool_id, context=context)
        if len(encoded) > INLINE_BYTES:
            return await self._make(call, encoded, running)
        return await self._make(call.model_copy(update={"arguments": from_json(encoded)}), b"", running)

    async def operate(self, name: str, arguments: bytes, context: OperationContext) -> tuple[Ended, bytes]:
        """The end of one execution of an operation and its content. Raises as `call`."""
        running = _Running(None, name, "", asyncio.get_running_loop().create_future())
        return await self._make(Operate(number=0, name=name, context=context), arguments, running)

    async def _make(self, call: Call | Operate, content: bytes, running: _Running) -> tuple[Ended, bytes]:
        async with self._free:
            if not self.is_serving:
                raise HostUnavailable(self.end_reason)
            number = self._last_number = self._last_number + 1
            self._calls[number] = running
            numbered = call.model_copy(update={"number": number})
            try:
                if content:
                    await self._connection.send_content(numbered, content)
                else:
                    self._connection.send(numbered)
                return await running.result
            except FrameError as error:
                self._drop(number)
                raise Invalid(f"The arguments can't be sent: {error}.") from error
            except asyncio.CancelledError:
                self._give_up(number, running)
                raise

    async def run_workflow(self, payload: RunPayload, context: CallContext, handler: RunHandler) -> tuple[Ended, bytes]:
        """The end of one execution of the workflow. It lasts as long as its turn, so it takes no place of a call.
        Raises as `call`."""
        if not self.is_serving:
            raise HostUnavailable(self.end_reason)
        number = self._last_number = self._last_number + 1
        result: asyncio.Future[tuple[Ended, bytes]] = asyncio.get_running_loop().create_future()
        running = _Running(handler, WORKFLOW, context.turn_id, result, is_workflow=True)
        self._calls[number] = running
        try:
            content = payload.model_dump_json().encode()
            await self._connection.send_content(Run(number=number, context=context), content)
            return await result
        except FrameError as error:
            self._drop(number)
            raise Invalid(f"The message can't be sent: {error}.") from error
        except asyncio.CancelledError:
            self._give_up(number, running)
            raise

    def find_workflow(self, turn_id: str) -> int | None:
        """The number of the workflow that runs for this turn."""
        for number, each in self._calls.items():
            if each.is_workflow and each.turn_id == turn_id and not each.is_given_up:
                return number
        return None

    async def invoke(self, number: int, function: Function, arguments: Mapping[str, Any]) -> tuple[Invoked, bytes]:
        """Call a function of this workflow; returns its end and its content. Raises HostUnavailable if the workflow
        ends, and Invalid if the arguments are too long."""
        running = self._calls[number]
        request = self._last_number = self._last_number + 1
        result = running.invoked[request] = asyncio.get_running_loop().create_future()
        try:
            self._connection.send(Invoke(number=number, request=request, function=function, arguments=dict(arguments)))
            return await result
        except FrameError as error:
            raise Invalid(f"The arguments can't be sent: {error}.") from error
        finally:
            running.invoked.pop(request, None)

    def end(self, kind: EndKind, reason: str) -> None:
        """End the process; its calls raise HostLost. Only the first end counts."""
        if self.end_kind is not None:
            return
        self.end_kind, self.end_reason = kind, reason
        self._over.set()
        if not self.described.done():
            self.described.set_exception(HostUnavailable(reason))
            self.described.exception()  # it may be that nobody waits for it
        for number, running in list(self._calls.items()):
            self._drop(number)
            if not running.result.done() and not running.is_given_up:
                running.result.set_exception(HostLost(f"The reason: {reason}."))

    def _begin(self, folder: Path) -> None:
        code = self._code
        begin = Begin(
            package=code.package,
            folder=str(folder),
            described=tuple(dict(each) for each in code.described),
            settings=dict(code.settings),
            secrets=dict(code.secrets),
        )
        try:
            self._connection.send(begin)
        except FrameError as error:
            self.end("start", f"its settings are too large: {error}")

    async def _watch(self) -> None:
        """Return when the process is over: it ended by itself, did not start in time, or is blocked."""
        over = asyncio.create_task(self._over.wait())
        beating = asyncio.create_task(self._wait_for_silence())
        try:
            await asyncio.wait({over, beating}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(over, beating)

    async def _wait_for_silence(self) -> None:
        limit_s = self._options.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._describe(await self._loaded)
        except TimeoutError:
            self.end("start", f"it was not ready within {limit_s:g} s")
            return
        limit_s = self._options.blocked_after_s
        try:
            while True:
                self._heard.clear()
                async with answered_within(limit_s):
                    await self._heard.wait()
        except TimeoutError:
            self.end("blocked", f"its event loop was blocked for {limit_s:g} s")

    def _disconnect(self, reason: str) -> None:
        if reason:
            self.end("protocol", reason)
        self._over.set()

    def _receive(self, message: ToWorker, content: bytes) -> None:
        self._heard.set()
        message = self._hide_secrets(message)
        match message:
            case Ended(number=number):
                running = self._drop(number)
                if running is not None and not running.result.done():
                    running.result.set_result((message, content))
                if message.is_exhausted:
                    self._replace("exhausted", "too little of its memory, open files or threads is left")
                self._end_if_unused()
            case Event(number=number):
                running = self._find(number)
                if running is not None and running.handler is not None and not running.is_workflow:
                    cast("CallHandler", running.handler).show(message)
            case Log(number=number):
                if (running := self._calls.get(number)) is not None and self._budget.allows(self._now_s()):
                    self._log_output(message.text, tool_id=running.tool_id, turn_id=running.turn_id)
            case Claim(number=number) | PutArtifact(number=number) | Ask(number=number):
                self._answer_later(number, message, content)
            case Invoked(number=number, request=request):
                running = self._calls.get(number)
                waiting = None if running is None else running.invoked.get(request)
                if waiting is not None and not waiting.done():
                    waiting.set_result((message, content))
            case Described():
                if not self._loaded.done():
                    self._loaded.set_result(content)
            case Failed():
                self.end("start", message.error)
            case _:
                pass

    def _hide_secrets(self, message: ToWorker) -> ToWorker:
        """The message with texts that are cut only after their secrets were removed."""
        match message:
            case Ended() | Failed() | Invoked():
                return message.model_copy(update={"error": self._redactor.redact(message.error)[:MAX_ERROR_CHARS]})
            case Event() | Log():
                return message.model_copy(update={"text": self._redactor.redact(message.text)[:MAX_TEXT_CHARS]})
            case _:
                return message

    async def _describe(self, content: bytes) -> None:
        try:
            described, is_expected = await asyncio.to_thread(_read_description, content, self._expected)
        except ValueError as error:
            self.end("protocol", f"its description is invalid: {error}")
            return
        if not is_expected:
            self.end("start", "it describes other tools than when it was started for the first time")
        if not self.described.done():
            self.described.set_result(described)

    def _answer_later(self, number: int, request: Claim | PutArtifact | Ask, content: bytes) -> None:
        running = self._find(number)
        if running is None:
            return
        is_ask = isinstance(request, Ask)
        is_foreign = not is_ask if running.is_workflow else is_ask and bool(content)
        if running.handler is None or is_foreign:
            self.end("protocol", f"it sent a request {request.kind!r} of something else")
            return
        others = [running] if running.is_workflow else [each for each in self._calls.values() if not each.is_workflow]
        limit = OPEN_REQUESTS * (MAX_ASKS if is_ask else MAX_REQUESTS)
        if sum(list(each.requests.values()).count(is_ask) for each in others) >= limit:
            self.end("protocol", f"it sent more than {limit} requests at once")
            return
        task = asyncio.create_task(self._answer(running, request, content))
        running.requests[task] = is_ask
        task.add_done_callback(running.requests.pop)

    async def _answer(self, running: _Running, request: Claim | PutArtifact | Ask, content: bytes) -> None:
        value: object = None
        problem = ""
        with guarded("bundle_request", health=None, bundle_id=self._code.bundle_id, kind=request.kind) as guard:
            try:
                if isinstance(request, Ask):
                    # What it records must not hold the bundle's secrets.
                    arguments = await self._redact_arguments(running, request.arguments)
                    send = partial(self._send_delta, request)
                    value = await cast("RunHandler", running.handler).ask(request.what, arguments, send, content)
                elif isinstance(request, Claim):
                    value = await cast("CallHandler", running.handler).claim(content)
                else:
                    value = await cast("CallHandler", running.handler).put_artifact(request, content)
            except EverturnError as error:
                problem = str(error) if not isinstance(request, Ask) else error.detail or str(error)
        if guard.error is not None:
            # Without an answer the function would wait until its turn ends.
            problem = "It failed. The log of the worker has the reason."
        answer = Answer(number=request.number, request=request.request, error=problem)
        encoded = to_json(value)
        if len(encoded) > INLINE_BYTES:
            await self._connection.send_content(answer, encoded)
        else:
            self._connection.send(answer.model_copy(update={"value": value}))

    async def _redact_arguments(self, running: _Running, arguments: Mapping[str, Any]) -> dict[str, Any]:
        # What is redacted in a thread is not overtaken by later requests.
        async with running.redacting:
            if has_more_values(to_json(arguments), _MAX_VALUES_ON_LOOP):
                redacted = await asyncio.to_thread(self._redactor.redact_value, arguments)
            else:
                redacted = self._redactor.redact_value(arguments)
        return cast("dict[str, Any]", redacted)

    async def _send_delta(self, ask: Ask, delta: Mapping[str, Any], is_field: bool) -> None:
        message = Delta(number=ask.number, request=ask.request, is_field=is_field)
        await self._connection.send_content(message, to_json(delta))

    def _find(self, number: int) -> _Running | None:
        running = self._calls.get(number)
        return None if running is None or running.is_given_up else running

    def _drop(self, number: int) -> _Running | None:
        running = self._calls.pop(number, None)
        if running is not None:
            self._end_requests(running)
        return running

    def _end_requests(self, running: _Running) -> None:
        for task in tuple(running.requests):
            task.cancel()
        for waiting in running.invoked.values():
            if not waiting.done():
                waiting.set_exception(HostUnavailable("The workflow of this turn does not run any more."))

    def _give_up(self, number: int, running: _Running) -> None:
        running.is_given_up = True
        self._end_requests(running)
        if number in self._calls:
            self._connection.send(Cancel(number=number))
            asyncio.get_running_loop().call_later(self._options.cancel_grace_s, self._check_ended, number)

    def _check_ended(self, number: int) -> None:
        running = self._calls.get(number)
        if running is not None:
            self._replace("stuck", f"{running.tool_id} did not end after its call was given up")
            self._end_if_unused()

    def _replace(self, kind: EndKind, why: str) -> None:
        """Give the process no more calls, and end it when those that run have ended."""
        if self.is_replaced or self.end_kind is not None:
            return
        self._replaced = kind, why
        about = {"bundle_id": self._code.bundle_id, "digest": self._code.digest[:12]}
        _log.warning("The process of a bundle is replaced", **about, reason=kind, why=why)
        asyncio.get_running_loop().call_later(RETIRE_WITHIN_S, self.end, kind, why)

    def _end_if_unused(self) -> None:
        if all(running.is_given_up for running in self._calls.values()):
            self.end_replaced()

    def end_replaced(self) -> None:
        """End the process, whose calls are lost, if it is replaced."""
        if self._replaced is not None:
            self.end(*self._replaced)

    def _log_output(self, text: str, **context: str) -> None:
        _log.info(
            "Output of a bundle",
            bundle_id=self._code.bundle_id,
            digest=self._code.digest[:12],
            text=self._redactor.redact(text),
            **context,
        )

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _read_description(content: bytes, expected: BundleDescription | None) -> tuple[BundleDescription, bool]:
    """What a process offers, and whether that was `expected`. Raises ValueError."""
    if has_more_values(content, MAX_CONTENT_VALUES):
        raise ValueError(f"it has more than {MAX_CONTENT_VALUES} values")
    try:
        described = BundleDescription.model_validate_json(content)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from error
    return described, expected in (None, described)


def make_home(home: Path, uid: int | None) -> None:
    """An empty one, also if another process has filled it."""
    remove_tree(str(home))
    home.mkdir(mode=0o700)
    if uid is not None:
        os.chown(home, uid, uid)


def _find_files(variables: Mapping[str, str]) -> list[Path]:
    """The files that variables name, such as one of certificates."""
    return [Path(value).resolve() for value in variables.values() if value.startswith("/")]


def _explain_status(status: int | None) -> str:
    match status:
        case None:
            return "it stopped answering"
        case int() if status > _SIGNALED:
            return f"it was killed by signal {status - _SIGNALED}"
        case _:
            return f"it ended with status {status}"

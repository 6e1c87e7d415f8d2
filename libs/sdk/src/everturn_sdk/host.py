"""The process that runs the code of one bundle: `python -m everturn_sdk.host DESCRIPTOR`.

DESCRIPTOR is the number of the socket to the worker that started it. It loads the bundle, says what its tools are, and
serves any number of calls and workflows at once until the socket closes. Async functions run on its event loop, others
in threads.
"""

import asyncio
import contextlib
import contextvars
import errno
import inspect
import mmap
import os
import resource
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from everturn_sdk.descriptors import LoadedTools, load_bundle_tools
from everturn_sdk.json_size import has_more_values
from everturn_sdk.operations import Operation, OperationError, load_operations
from everturn_sdk.protocol import (
    BEAT_S,
    HOOK_S,
    MAX_ASKS,
    MAX_CONTENT_BYTES,
    MAX_CONTENT_VALUES,
    MAX_FIELDS,
    MAX_OPERATION_RESULT_BYTES,
    MAX_REQUESTS,
    SENT_ERROR_CHARS,
    SENT_TEXT_CHARS,
    SOURCES,
    TO_HOST,
    Answer,
    Ask,
    Beat,
    Begin,
    Call,
    Cancel,
    Claim,
    Connection,
    Delta,
    Described,
    Ended,
    Event,
    Failed,
    FieldProblem,
    FrameError,
    Function,
    Invoke,
    Invoked,
    Log,
    Message,
    Operate,
    PutArtifact,
    Question,
    RenderedFile,
    Run,
    RunPayload,
    SourceRow,
    ToHost,
)
from everturn_sdk.settings import use_settings
from everturn_sdk.tools import BadTool, Rendered, ToolContext, ToolError, ToolFunction, run_coroutine
from everturn_sdk.workflows import BaseWorkflow, Payload, React, WorkflowError, load_workflow, read_answer

THREADS = 32
"""Functions that are not async and run at once; more of them wait."""
STACK_BYTES = 2 * 1024 * 1024
"""Of each thread: it counts as memory of the process."""
_ENDED = "The call has ended."


class Host:
    """Serves the calls of one worker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tools = LoadedTools((), ())
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tool")
        self._workflow: BaseWorkflow | None = None
        self._operations: dict[str, Operation] = {}
        self._loading: asyncio.Task[None] | None = None
        self._calls: dict[int, RunningCall | RunningWorkflow | RunningOperation] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self.requests = asyncio.Semaphore(MAX_REQUESTS)
        """Held by a call while it stores sources or a file."""
        self.model_calls = asyncio.Semaphore(MAX_ASKS)
        """Held by a call while it waits for a model."""
        self.connection = Connection(TO_HOST, self._receive, self._close)

    async def run(self) -> None:
        """Beat until the worker closes the socket."""
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._ended.wait()
            self.connection.send(Beat())

    def _close(self, reason: str) -> None:
        if reason:
            print(f"The worker closed the connection: {reason}", file=sys.stderr)  # noqa: T201 - for the log
        self._ended.set()

    def _receive(self, message: ToHost, content: bytes) -> None:
        match message:
            case Begin():
                self._loading = self._loop.create_task(self._begin(message))
            case Call(number=number):
                self._calls[number] = RunningCall(self, message, content)
            case Operate(number=number):
                self._calls[number] = RunningOperation(self, self._operations.get(message.name), message, content)
            case Run(number=number):
                self._calls[number] = RunningWorkflow(self, self._workflow, message, content)
            case Invoke(number=number):
                if isinstance(running := self._calls.get(number), RunningWorkflow):
                    running.invoke(message)
            case Cancel(number=number):
                if (call := self._calls.get(number)) is not None:
                    call.cancel()
            case Delta(number=number):
                call = self._calls.get(number)
                if isinstance(call, RunningCall | RunningWorkflow):
                    call.receive_delta(message, content)
            case Answer(number=number):
                call = self._calls.get(number)
                if isinstance(call, RunningCall | RunningWorkflow):
                    call.receive(message, content)

    async def _begin(self, begin: Begin) -> None:
        try:
            use_settings(begin.settings, begin.secrets)
            folder = Path(begin.folder)
            sys.path[:0] = [str(folder.parent), str(folder)]
            self._tools = load_bundle_tools(folder, begin.package, begin.described)
            self._workflow = load_workflow(folder, begin.package)
            if self._workflow is not None:
                await self.call(self._workflow.on_bundle_load, ())
            self._operations = load_operations(self._workflow)
            workflow = self._workflow
            described = {
                "has_workflow": workflow is not None,
                "hooks": workflow.hooks if workflow else (),
                "operations": tuple(each.description for each in self._operations.values()),
            }
            content = self._tools.description.model_copy(update=described).model_dump_json().encode()
        except BadTool as error:
            self.connection.send(Failed(error=str(error)[:SENT_ERROR_CHARS]))
        except BaseException:  # noqa: BLE001 - an author's module can raise anything, also SystemExit
            self.connection.send(Failed(error=_describe_exception()))
        else:
            self.send_content(Described(), content)

    def send_content(self, message: Message, content: bytes) -> None:
        """Send a content and its message in the background, in the order of these calls."""
        task = self._loop.create_task(self.connection.send_content(message, content))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def send_end(self, ended: Ended, value: bytes, *, max_bytes: int = MAX_CONTENT_BYTES) -> None:
        """Send the end of a call with its value, which is JSON or empty."""
        if len(value) > max_bytes:
            text = f"Its result has {len(value)} bytes as JSON; at most {max_bytes} are allowed."
            ended, value = Ended(number=ended.number, status="raised", error=text), b""
        elif has_more_values(value, MAX_CONTENT_VALUES):
            text = f"Its result has more than {MAX_CONTENT_VALUES} values."
            ended, value = Ended(number=ended.number, status="raised", error=text), b""
        if ended.status == "raised":
            ended = ended.model_copy(update={"is_exhausted": is_exhausted()})
        if value:
            self.send_content(ended, value)
        else:
            self.connection.send(ended)

    def find_tool(self, tool_id: str) -> ToolFunction | None:
        return self._tools.functions.get(tool_id)

    async def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call a function of the author, which may be async."""
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        given = await self.run_in_thread(function, *arguments)
        return await given if inspect.isawaitable(given) else given

    async def run_in_thread(self, function: Callable[..., Any], *values: Any, **arguments: Any) -> Any:
        """A cancelled call ends when its function has: the worker replaces a host with functions that don't end."""
        running = self._threads.submit(contextvars.copy_context().run, function, *values, **arguments)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if running.running():
                await asyncio.wait({asyncio.wrap_future(running)})
            raise

    def drop(self, number: int) -> None:
        self._calls.pop(number, None)

    def call_soon(self, message: Message) -> None:
        """Send from any thread."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self.connection.send(message)
        else:
            self._loop.call_soon_threadsafe(self.connection.send, message)

    def wait(self, made: Awaitable[Any]) -> Any:
        return run_coroutine(self._loop, made)


def is_exhausted() -> bool:
    """Whether less than a quarter of the memory or of the open files that the process may have is left, or no thread.

    Asked after a function has failed: what leaks keep is not given back before the process ends.
    """
    opened: list[int] = []
    try:
        # The kernel counts the memory, although nothing is written to it.
        wanted = max(4, resource.getrlimit(resource.RLIMIT_DATA)[0]) // 4
        mmap.mmap(-1, wanted, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
        for _ in range(max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 4):
            opened.append(os.open(os.devnull, os.O_RDONLY))
        threading.Thread(target=int, daemon=True).start()
    except RuntimeError:
        return True
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False


class _Asking:
    """What calls and workflows share: their requests to the worker, which raise `failure`, and of which those of `ask`
    hold `free`."""

    def __init__(
        self, host: Host, number: int, free: asyncio.Semaphore, failure: type[ToolError] | type[WorkflowError]
    ) -> None:
        self._host = host
        self._number = number
        self._free = free
        self._failure = failure
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._next_request = 0
        self._deltas: dict[int, asyncio.Queue[tuple[Any, bool] | None]] = {}
        self._has_ended = False

    def receive(self, answer: Answer, content: bytes) -> None:
        _settle(self._requests.pop(answer.request, None), answer, content, self._failure)

    def receive_delta(self, delta: Delta, content: bytes) -> None:
        if (deltas := self._deltas.get(delta.request)) is not None:
            deltas.put_nowait((from_json(content), delta.is_field))

    def log(self, text: str) -> None:
        self._host.call_soon(Log(number=self._number, text=_clean(text)[:SENT_TEXT_CHARS]))

    async def ask(
        self,
        what: Question,
        arguments: Mapping[str, Any],
        deliver: Callable[[Any, bool], Awaitable[None]] | None = None,
        content: bytes = b"",
    ) -> Any:
        async with self._free:
            number = self._take_number()
            try:
                request = Ask(number=self._number, request=number, what=what, arguments=dict(arguments))
            except ValidationError as error:
                raise self._failure(str(error)) from error
            return await self._request(request, content, deliver)

    def _take_number(self) -> int:
        self._next_request += 1
        return self._next_request

    async def _request(
        self,
        request: Claim | PutArtifact | Ask,
        content: bytes,
        deliver: Callable[[Any, bool], Awaitable[None]] | None = None,
    ) -> Any:
        if self._has_ended:
            raise self._failure(_ENDED)
        number = request.request
        waiting = self._requests[number] = asyncio.get_running_loop().create_future()
        try:
            if deliver is None:
                await self._host.connection.send_content(request, content)
                return await waiting
            # At most one reply of a model waits here.
            deltas = self._deltas[number] = asyncio.Queue()
            delivering = asyncio.create_task(_deliver_all(deltas, deliver))
            try:
                self._host.connection.send(request)
                answer = await waiting
                deltas.put_nowait(None)
                await delivering
                return answer
            finally:
                delivering.cancel()
        except FrameError as error:
            raise self._failure(str(error)) from error
        finally:
            self._requests.pop(number, None)
            self._deltas.pop(number, None)


class RunningCall(_Asking):
    """One call, and the port of its context. It ends with exactly one message."""

    def __init__(self, host: Host, call: Call, content: bytes) -> None:
        super().__init__(host, call.number, host.model_calls, ToolError)
        self._context = ToolContext(call.context, self)
        self._task = asyncio.get_running_loop().create_task(self._run(call, content))

    def cancel(self) -> None:
        self._context.is_cancelled = True
        self._task.cancel()

    def emit(self, event: Literal["progress", "message", "data"], text: str, data: dict[str, Any] | None) -> None:
        self._host.call_soon(Event(number=self._number, event=event, text=_clean(text), data=data))

    async def claim(self, sources: Sequence[SourceRow]) -> list[int]:
        request = Claim(number=self._number, request=self._take_number())
        return await self._store(request, SOURCES.dump_json(tuple(sources)))

    async def put_artifact(
        self, path: str, content: bytes, description: str, visibility: Literal["internal", "external"]
    ) -> str:
        request = PutArtifact(
            number=self._number,
            request=self._take_number(),
            path=path,
            description=description,
            visibility=visibility,
        )
        return await self._store(request, content)

    def wait(self, made: Awaitable[Any]) -> Any:
        return self._host.wait(made)

    async def _store(self, request: Claim | PutArtifact, content: bytes) -> Any:
        async with self._host.requests:
            return await self._request(request, content)

    async def _run(self, call: Call, content: bytes) -> None:
        value = b""
        try:
            ended, value = await self._serve(call, content)
        except BaseException:  # noqa: BLE001 - the tool-call edge: an author's function can raise anything
            # Also if the worker has given up the call: it wants to know when the function has ended.
            ended = Ended(number=call.number, status="raised", error=_describe_exception())
        self._host.drop(call.number)
        self._has_ended = True
        for waiting in self._requests.values():
            # The worker answers no more requests of this call.
            if not waiting.done():
                waiting.set_exception(ToolError(_ENDED))
        self._host.send_end(ended, value)

    async def _serve(self, call: Call, content: bytes) -> tuple[Ended, bytes]:
        number = call.number
        tool = self._host.find_tool(call.tool_id)
        if tool is None:
            return Ended(number=number, status="invalid", error=f"There is no tool {call.tool_id!r}."), b""
        try:
            arguments = tool.read_arguments(content or to_json(call.arguments))
        except ValidationError as error:
            return Ended(number=number, status="invalid", error=_explain_arguments(error)), b""
        if tool.context_name is not None:
            arguments[tool.context_name] = self._context
        try:
            if tool.is_async:
                given = await tool.function(**arguments)
            else:
                given = await self._host.run_in_thread(tool.function, **arguments)
        except ToolError as error:
            return Ended(number=number, status="notice", error=_clean(str(error))[:SENT_ERROR_CHARS]), b""
        if isinstance(given, Rendered):
            rendered = RenderedFile(filename=given.filename, mime=given.mime)
            return Ended(number=number, status="ok", rendered=rendered), to_json(_clean(given.text))
        return Ended(number=number, status="ok"), _encode(given)


class RunningOperation:
    """One execution of an operation. It ends with exactly one message."""

    def __init__(self, host: Host, operation: Operation | None, operate: Operate, arguments: bytes) -> None:
        self._host = host
        self._task = asyncio.get_running_loop().create_task(self._run(operation, operate, arguments))

    def cancel(self) -> None:
        self._task.cancel()

    async def _run(self, operation: Operation | None, operate: Operate, arguments: bytes) -> None:
        value = b""
        try:
            ended, value = await self._execute(operation, operate, arguments)
        except BaseException:  # noqa: BLE001 - an author's method can raise anything
            # Also if the worker has given it up: it wants to know when the method has ended.
            ended = Ended(number=operate.number, status="raised", error=_describe_exception())
        self._host.drop(operate.number)
        self._host.send_end(ended, value, max_bytes=MAX_OPERATION_RESULT_BYTES)

    async def _execute(self, operation: Operation | None, operate: Operate, arguments: bytes) -> tuple[Ended, bytes]:
        number = operate.number
        if operation is None:
            return Ended(number=number, status="invalid", error=f"There is no operation {operate.name!r}."), b""
        try:
            method, given = operation.bind(arguments, operate.context)
        except ValidationError as error:
            return Ended(number=number, status="invalid", fields=_list_fields(error)), b""
        try:
            if inspect.iscoroutinefunction(method):
                result = await method(**given)
            else:
                result = await self._host.run_in_thread(method, **given)
        except OperationError as error:
            return Ended(number=number, status="notice", error=_clean(str(error))[:SENT_ERROR_CHARS]), b""
        return Ended(number=number, status="ok"), _encode(result)


class RunningWorkflow(_Asking):
    """One execution of a workflow for a turn, and its port. It ends with exactly one message."""

    def __init__(self, host: Host, workflow: BaseWorkflow | None, run: Run, content: bytes) -> None:
        super().__init__(host, run.number, asyncio.Semaphore(MAX_ASKS), WorkflowError)
        self._react: React | None = None
        self._mine: BaseWorkflow | None = None
        self._invoked: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._run(workflow, run, content))

    def cancel(self) -> None:
        for task in (self._task, *self._invoked):
            task.cancel()

    async def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        return await self._host.call(function, arguments)

    def serve(self, react: React) -> None:
        self._react = react

    def invoke(self, invoke: Invoke) -> None:
        task = asyncio.get_running_loop().create_task(self._invoke(invoke))
        self._invoked.add(task)
        task.add_done_callback(self._invoked.discard)

    async def _invoke(self, invoke: Invoke) -> None:
        invoked = Invoked(number=self._number, request=invoke.request)
        try:
            given = await self._call_function(invoke.function, invoke.arguments)
            value = to_json(given if isinstance(given, str) else from_json(to_json(given, bytes_mode="base64")))
            if len(value) > MAX_CONTENT_BYTES:
                raise WorkflowError(f"its result has {len(value)} bytes; at most {MAX_CONTENT_BYTES} are allowed")
        except BaseException:  # noqa: BLE001 - an author's function can raise anything
            self._host.connection.send(invoked.model_copy(update={"error": _describe_exception()}))
        else:
            self._host.send_content(invoked, value)

    async def _call_function(self, function: Function, arguments: Mapping[str, Any]) -> Any:
        match function:
            case "search" | "read":
                if self._react is None:
                    raise WorkflowError("the workflow has no agent")
                return await self._react.invoke(function, arguments, self)
            case "before_round" | "after_tool":
                if self._mine is not None:
                    await self._mine.observe(function, arguments)
                return ""

    async def _run(self, workflow: BaseWorkflow | None, run: Run, content: bytes) -> None:
        value = b""
        try:
            value = to_json(await self._execute(workflow, run, content))
            ended = Ended(number=run.number, status="ok")
        except BaseException:  # noqa: BLE001 - an author's workflow can raise anything
            # Also if the worker has given up the run: it wants to know when it has ended.
            ended = Ended(number=run.number, status="raised", error=_describe_exception())
        for task in tuple(self._invoked):
            task.cancel()
        self._host.drop(run.number)
        self._host.send_end(ended, value)

    async def _execute(self, workflow: BaseWorkflow | None, run: Run, content: bytes) -> str | None:
        if workflow is None:
            raise WorkflowError("the bundle has no workflow")
        given, about = RunPayload.model_validate_json(content), run.context.model_dump()
        payload = Payload.model_validate({**about, "text": given.text, "attachments": given.attachments})
        mine = self._mine = workflow.attach(self, payload, given.urls)
        await self.call(mine.pre_run_hook, ())
        try:
            answer = read_answer(await mine.run(payload))
            return None if answer is None else _clean(answer)
        finally:
            if not self._task.cancelling():
                await self._end(mine)

    async def _end(self, workflow: BaseWorkflow) -> None:
        try:
            async with asyncio.timeout(HOOK_S):
                await self.call(workflow.on_turn_end, ())
        except Exception:  # noqa: BLE001 - the answer is written: an author's hook can't take it back
            self.log(f"on_turn_end failed: {_describe_exception()}")


async def _deliver_all(
    deltas: "asyncio.Queue[tuple[Any, bool] | None]", deliver: Callable[[Any, bool], Awaitable[None]]
) -> None:
    while (delta := await deltas.get()) is not None:
        await deliver(*delta)


def _settle(
    waiting: asyncio.Future[Any] | None, answer: Answer, content: bytes, failure: Callable[[str], Exception]
) -> None:
    if waiting is None or waiting.done():
        return
    if answer.error:
        waiting.set_exception(failure(answer.error))
    else:
        waiting.set_result(from_json(content) if content else answer.value)


def _encode(given: object) -> bytes:
    try:
        return to_json(given, bytes_mode="base64", inf_nan_mode="null")
    except UnicodeEncodeError:
        return to_json(_clean(str(given)))
    except PydanticSerializationError as error:
        raise TypeError(f"its result can't be sent as JSON: {error}") from error


def _clean(text: str) -> str:
    """The text without lone surrogates, which no JSON can carry."""
    return text.encode("utf-8", "replace").decode()


def _describe_exception() -> str:
    """The exception that is being handled, with the last line of the author's code that raised it."""
    error = sys.exc_info()[1]
    if error is None:
        return "unknown error"
    if isinstance(error, SyntaxError):
        text = f"{type(error).__name__}: {error}"
        if error.filename and not _is_library(error.filename):
            # The text ends with the file and line.
            return _clean(text)[:SENT_ERROR_CHARS]
    else:
        text = "".join(traceback.format_exception_only(error)).strip()
    text += ". Name its package in requirements.txt, or correct the name" if type(error) is ModuleNotFoundError else ""
    own = [each for each in traceback.extract_tb(error.__traceback__) if not _is_library(each.filename)]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return _clean(f"{text}{place}")[:SENT_ERROR_CHARS]


def _is_library(filename: str) -> bool:
    return filename.startswith(("<", sys.prefix, sys.base_prefix)) or "everturn_sdk" in filename


def _list_fields(error: ValidationError) -> tuple[FieldProblem, ...]:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return tuple(
        FieldProblem(
            field=_clean(".".join(str(part)[:80] for part in each["loc"][:10])), message=_clean(each["msg"])[:300]
        )
        for each in problems[:MAX_FIELDS]
    )


def _explain_arguments(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    named = "; ".join(f"{'.'.join(str(part)[:80] for part in each['loc'])}: {each['msg']}" for each in problems[:5])
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return _clean(f"{named}{more}")[:SENT_ERROR_CHARS]


async def serve(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    host = Host(loop)
    connected = socket.socket(fileno=descriptor)
    connected.setblocking(False)
    await loop.create_connection(lambda: host.connection, sock=connected)
    await host.run()


def main(arguments: Sequence[str]) -> None:
    threading.stack_size(STACK_BYTES)
    asyncio.run(serve(int(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
    # A thread of a function that never ends must not keep the process alive.
    os._exit(0)

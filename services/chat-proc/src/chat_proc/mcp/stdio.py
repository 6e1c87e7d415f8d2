"""An MCP server as a child process: a clean environment, limits on what it may use, nothing left behind, and messages
of bounded size.

The SDK's own transport hands down variables of ours and collects lines of any length.
"""

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from chat_proc.bundles.host.environments import REQUIREMENTS, Environments, find_shared_folders
from chat_proc.bundles.host.processes import ProcessLimits, WatchedProcess, claim_uid
from chat_proc.bundles.host.section import MIB
from chat_proc.bundles.host.watchdog import remove_tree
from chat_proc.mcp.pacing import MAX_MESSAGE_BYTES, Pace, TooLarge, check_message
from everturn.core.cancellation import acquire_in_thread
from everturn.core.errors import Unavailable
from everturn.core.logging import Redactor
from everturn.core.transports import CheckedWriter

END_WITHIN_S: Final = 2.0
"""How long a server has to end by itself once its input is closed."""
MAX_ERROR_CHARS: Final = 400
"""Of a server's error output, which explains why the server ended, the beginning and the end are kept. Fits into a
problem."""
FIRST_CHARS: Final = 180
"""Of these, how many are the beginning. Node writes the reason first, Python last."""
NOT_STARTED: Final = (
    "Its program must start the server and go on, as `server.run()` does in the last line of a Python file."
)
"""Why a server most likely ends at once without an error."""
_SIGNALED: Final = 128
PYTHONS: Final = ("python", "python3")
"""As the command of a bundle: the Python with the libraries of its requirements.txt."""
MEMORY_BYTES: Final = 2048 * MIB
PROCESSES: Final = 256
"""Threads and processes; Node has a dozen threads."""

_log = structlog.get_logger(__name__)

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """The operator's part. `search_path` has the folders of commands; `uids` are users for the servers of bundles if
    the worker is root; `variables` are added to the environment, such as those of a proxy."""

    search_path: str = os.defpath
    environments: Environments | None = None
    uids: range = range(0)
    variables: Mapping[str, str] = field(default_factory=lambda: {})


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """What is started. `files` are those of the bundle that describes the server; None for a server of the operator,
    which can read what the worker can."""

    command: str
    args: Sequence[str]
    environment: Mapping[str, str]
    files: Mapping[str, bytes] | None


class StdioProcess:
    """The streams of one server process for the SDK, as `open` yields them. What it writes to its error output is
    logged, and `explain_end` says why it ended, both without the secrets of `redactor`."""

    def __init__(self, alias: str, command: ChildCommand, options: ChildOptions, redactor: Redactor) -> None:
        self._alias = alias
        self._command = command
        self._options = options
        self._redactor = redactor
        self._first = self._last = ""
        self._folder = ""
        self._why = ""
        self._process: WatchedProcess | None = None
        self.ended = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams]:
        """Start the server, and end it with all that it has started. Raises Unavailable if it can't be started, and
        Invalid if the libraries of the bundle can't be installed."""
        uids = range(0) if self._command.files is None else self._options.uids
        async with claim_uid(uids) as uid, self._open_as(uid) as streams:
            yield streams

    @asynccontextmanager
    async def _open_as(self, uid: int | None) -> AsyncGenerator[Streams]:
        root = await acquire_in_thread(partial(_write_files, self._command.files or {}, uid), _remove)
        try:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            try:
                async with AsyncExitStack() as used, await self._build_process(root, uid, theirs, used) as process:
                    theirs.close()
                    self._process = process
                    reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_MESSAGE_BYTES)
                    async with self._bridge(reader, CheckedWriter(writer)) as streams:
                        yield streams
                    writer.close()
                    # As the protocol says: first close its input.
                    await process.wait(END_WITHIN_S)
            except OSError as error:
                raise Unavailable(f"{self._command.command} can't be started: {error}.") from error
            finally:
                theirs.close()
                ours.close()
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(_remove, root)

    def explain_end(self) -> str:
        """Why the connection ended, with the first and the last lines that the server wrote to its error output."""
        written = f"{self._first}{self._last}".strip()
        return f"{self._why}{f' It wrote: {written}' if written else ''}".strip()

    async def _build_process(
        self, root: Path, uid: int | None, theirs: socket.socket, used: AsyncExitStack
    ) -> WatchedProcess:
        code, home, command = root / "bundle", root / "home", self._command
        self._folder = f"{code}/"
        program, needed = await self._find_program(code, used)
        environment = {
            **self._options.variables,
            "PATH": f"{program.parent}:{self._options.search_path}",
            "HOME": str(home),
            "TMPDIR": str(home),
            "LANG": "C.UTF-8",
            **command.environment,
        }
        confined = command.files is not None
        return WatchedProcess(
            [str(program), *command.args],
            folder=code,
            environment=environment,
            limits=ProcessLimits(memory_bytes=MEMORY_BYTES, open_files=1024, processes=PROCESSES, uid=uid),
            on_line=self._note_line,
            redactor=self._redactor,
            descriptor=theirs.fileno(),
            speaks=True,
            shown=(*needed, code, home) if confined else (),
            readable=(*needed, code) if confined else (),
            home=home if confined else None,
            root=root,
        )

    async def _find_program(self, code: Path, used: AsyncExitStack) -> tuple[Path, tuple[Path, ...]]:
        """The program, and what it needs to read besides the system's folders, which stays while it is `used`."""
        name, environments = self._command.command, self._options.environments
        if name in PYTHONS and self._command.files is not None and environments is not None:
            requirements = self._command.files.get(REQUIREMENTS, b"")
            python = await used.enter_async_context(environments.use(requirements))
            return python, find_shared_folders(python)
        if "/" in name and not name.startswith("/"):
            return code / PurePosixPath(name), ()
        return await asyncio.to_thread(_find_installed, name, self._options.search_path)

    def _note_line(self, line: str) -> None:
        # Without its folder, which is another one for each start: the same reason is reported once.
        line = line.strip().replace(self._folder, "")
        if line:
            _log.info("Output of an MCP server", server=self._alias, text=line)
        written = f" {line}"
        room = FIRST_CHARS - len(self._first)
        self._first += written[:room]
        last = self._last + written[room:]
        kept = MAX_ERROR_CHARS - FIRST_CHARS
        self._last = last if len(last) <= kept else f"...{last[3 - kept :]}"

    async def _describe_end(self, *, has_answered: bool) -> str:
        """How the process ended, which its output does a moment earlier."""
        if self._process is not None:
            await self._process.wait(END_WITHIN_S)
        status = None if self._process is None else self._process.status
        when = "" if has_answered else " before it answered"
        if status is None:
            return f"The server closed its output{when}, but its process still runs."
        how = f"killed by signal {status - _SIGNALED}" if status > _SIGNALED else f"with exit status {status}"
        hint = f" {NOT_STARTED}" if status == 0 and not has_answered else ""
        return f"The server ended{when}, {how}.{hint}"

    @asynccontextmanager
    async def _bridge(self, reader: asyncio.StreamReader, writer: CheckedWriter) -> AsyncGenerator[Streams]:
        send_in, read_stream = anyio.create_memory_object_stream[Incoming](0)
        write_stream, receive_out = anyio.create_memory_object_stream[SessionMessage](0)
        async with send_in, read_stream, write_stream, receive_out, anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_messages, reader, send_in)
            tasks.start_soon(self._write_messages, writer, receive_out, send_in)
            try:
                yield read_stream, write_stream
            finally:
                tasks.cancel_scope.cancel()

    async def _read_messages(self, reader: asyncio.StreamReader, send: MemoryObjectSendStream[Incoming]) -> None:
        pace, has_answered = Pace(), False
        try:
            # Our own end of the connection may have closed.
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async with send:
                    # A server that ends without reading all that was sent resets the connection.
                    with suppress(ConnectionError):
                        while line := await reader.readline():
                            await pace.wait(1, len(line), check_message(line))
                            with suppress(ValueError):  # something else that the server printed
                                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                                await send.send(SessionMessage(message))
                                has_answered = True
                    # Before the session learns that the connection is over, and asks why.
                    self._why = await self._describe_end(has_answered=has_answered)
        except (ValueError, TooLarge):  # readline raises ValueError for a line beyond its limit
            self._why = f"The server sent a message of more than {MAX_MESSAGE_BYTES} bytes, or with too many values."
        finally:
            self.ended.set()

    async def _write_messages(
        self,
        writer: CheckedWriter,
        messages: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[Incoming],
    ) -> None:
        try:
            async with messages:
                async for message in messages:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writer.write(text.encode() + b"\n")
                    await writer.drain()
        except OSError:
            # The server no longer reads: end the connection, so that its requests don't wait.
            self._why = self._why or "The server closed its input."
            self.ended.set()
            await incoming.aclose()


def _find_installed(name: str, search_path: str) -> tuple[Path, tuple[Path, ...]]:
    found = shutil.which(name, path=search_path)
    if found is None:
        hint = " Write what follows the program into args." if " " in name else ""
        raise Unavailable(f"The command {name} does not exist here.{hint}")
    program = Path(found).absolute()
    # The libraries of a program are beside its folder `bin`.
    return program, tuple({each.parents[1] for each in (program, program.resolve()) if len(each.parents) > 2})


def _write_files(files: Mapping[str, bytes], uid: int | None) -> Path:
    """A new folder with these files and an empty home. Raises OSError."""
    root = Path(tempfile.mkdtemp(prefix="everturn-mcp-"))
    with ExitStack() as failing:
        failing.callback(_remove, root)
        code, home = root / "bundle", root / "home"
        code.mkdir()
        for name, content in files.items():
            path = code / PurePosixPath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            # Files have no modes in a bundle, and one may be the command.
            path.chmod(0o755)
        home.mkdir(mode=0o700)
        if uid is not None:
            os.chown(home, uid, uid)
            root.chmod(0o711)
        failing.pop_all()
    return root


def _remove(root: Path) -> None:
    remove_tree(str(root))

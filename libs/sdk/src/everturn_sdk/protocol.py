"""What a worker and the host process of a bundle say to each other over their socket.

A frame is a u32 in big endian and so many bytes after it. With its top bit set the bytes are a part of a content: the
bytes of a file, or JSON that is too long for a message. Otherwise they are one message, as JSON. Parts come before the
message that owns them, which gives their total length as `content_bytes`; other messages may come between them.

Both ends are of the same release, so an unknown message is an error.
"""

import asyncio
import struct
import time
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from everturn_sdk.json_size import has_more_values

MAX_MESSAGE_BYTES: Final = 256 * 1024
MAX_VALUES: Final = 20_000
"""Limits of one message: parsing it takes about 2 ms of an event loop."""
PART_BYTES: Final = 256 * 1024
MAX_CONTENT_BYTES: Final = 16 * 1024 * 1024
"""Size limit of one result, one file, or the arguments of one call."""
MAX_CONTENT_VALUES: Final = 250_000
"""Values of a content that is JSON: parsing so many takes 0.1 s of a thread, and 50 MB."""
INLINE_BYTES: Final = 24 * 1024
"""Longer JSON is sent as content, which the receiver can parse in a thread. So much of it has less than MAX_VALUES."""
BEAT_S: Final = 0.5
"""Time between two beats of a host."""
MAX_EVENTS: Final = 100
"""Events that one call may send."""
MAX_TEXT_CHARS: Final = 2_000
"""Length limit of the text of an event or log line; a longer one is cut."""
MAX_DATA_BYTES: Final = 8_192
"""Size limit of the data of an event, as JSON."""
MAX_ERROR_CHARS: Final = 4_000
"""Length limit of the text of an error; a longer one is cut."""
_SPARE_CHARS: Final = 8 * 1024
"""The worker removes secrets from a text and then cuts it. So a process sends more than is kept: a part of a secret
would not be found."""
SENT_TEXT_CHARS: Final = MAX_TEXT_CHARS + _SPARE_CHARS
SENT_ERROR_CHARS: Final = MAX_ERROR_CHARS + _SPARE_CHARS
MAX_STEP_BYTES: Final = 64 * 1024
"""Size limit of the result of a step of a workflow, as JSON."""
MAX_FIELDS: Final = 20
"""Arguments of an operation that are named as wrong."""

_SLICE_S: Final = 0.002
_PAUSES: Final = 3
"""After so much time of a processor a connection pauses for several times as long: whatever a host sends, reading it
costs its worker no more than a quarter of a processor."""
_MAX_SHOWN_ERRORS: Final = 20
_PART_BIT: Final = 0x8000_0000
_LENGTH: Final = struct.Struct(">I")

MAX_OPERATION_RESULT_BYTES: Final = 1024 * 1024
"""Size limit of the result of an operation, as JSON."""
MAX_REQUESTS: Final = 16
"""Sources and files that the calls of one process store at once; more of them wait."""
MAX_ASKS: Final = 32
"""Requests of one running workflow, and calls of models by all tools of one process, that are open at once."""

Question = Literal[
    "segment",
    "step_begin",
    "step_end",
    "feedback",
    "stream",
    "structured",
    "emit",
    "put_file",
    "search",
    "fetch_ctx",
    "turns",
    "timeline",
    "files",
    "load_file",
]
"""What a running workflow can ask: to let the agent answer, to record the beginning or the end of a step, to judge the
turn, to call a model for texts or for a value, to show a text, to store a file, to search conversations, to read refs,
or to read the turns, the timeline and the files of the conversation."""
Effect = Literal["pure", "idempotent", "irreversible"]
"""What repeating a call would do: nothing, the same again, or something that can't be undone."""
Strategy = Literal["exploration", "exploitation", "neutral", "unknown"]
"""The purpose of a tool: finding information, producing something from it, or neither."""


Hook = Literal["before_round", "after_tool"]
Function = Literal["search", "read"] | Hook
"""What a worker calls in a running workflow: knowledge functions, and hooks."""
HOOK_S: Final = 5.0
"""How long a hook can take."""


class Message(BaseModel):
    """One message. `content_bytes` is the length of the content that was sent before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    content_bytes: int = Field(default=0, ge=0, le=MAX_CONTENT_BYTES)


class Begin(Message):
    """The first message of a worker: where the bundle is, and what its functions can read. `package` is the name under
    which the folder can be imported; `described` are the tables `[[tools]]` of bundle.toml."""

    kind: Literal["begin"] = "begin"
    package: str
    folder: str
    described: tuple[dict[str, Any], ...] = ()
    settings: dict[str, Any] = {}
    secrets: dict[str, str] = Field(default={}, repr=False)


class CallContext(BaseModel):
    """For whom and where a call is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    call_id: str
    """The id of the call; the same if the call is repeated after a crash."""
    tenant: str
    project: str
    user_id: str
    roles: tuple[str, ...]
    conversation_id: str
    turn_id: str
    round: int
    """The round of the turn, from 1."""
    now: str
    """When the call was made, in ISO 8601, UTC."""


class Call(Message):
    """A call to make. Its arguments are the content if they are too long."""

    kind: Literal["call"] = "call"
    number: int
    tool_id: str
    arguments: dict[str, Any] = {}
    context: CallContext


class Run(Message):
    """A turn whose workflow is to be run; its end is an Ended with the text of the answer, or null. The content is a
    RunPayload."""

    kind: Literal["run"] = "run"
    number: int
    context: CallContext


class OperationContext(BaseModel):
    """Who called an operation; `request_id` names the request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    request_id: str
    tenant: str
    project: str
    user_id: str
    roles: tuple[str, ...]


class Operate(Message):
    """An operation to execute. The content are its arguments: a JSON object."""

    kind: Literal["operate"] = "operate"
    number: int
    name: str
    context: OperationContext


class RunFile(BaseModel):
    """A file as a workflow sees it. `url` is the path of its content on the platform."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str
    """How tools and answers name the file, such as `fi:<turn_id>.outputs/report.pdf`."""
    filename: str
    mime: str
    size: int
    """In bytes."""
    url: str


class RunPayload(BaseModel):
    """The content of Run: the message that the turn answers, and the path of each known file's content by its ref."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    attachments: tuple[RunFile, ...] = ()
    urls: dict[str, str] = {}


class Invoke(Message):
    """A call of a function that a running workflow gave to its agent, or of one of its hooks."""

    kind: Literal["invoke"] = "invoke"
    number: int
    request: int
    function: Function
    arguments: dict[str, Any] = {}


class Cancel(Message):
    """Nobody waits for this call any more."""

    kind: Literal["cancel"] = "cancel"
    number: int


class Answer(Message):
    """The answer to a request of a call; `error` says why there is none. A long value is the content, as JSON."""

    kind: Literal["answer"] = "answer"
    number: int
    request: int
    value: Any = None
    error: str = ""


class Delta(Message):
    """A piece of the reply that a request waits for. The content are the fields of
    `everturn_sdk.channels.EmitDelta`, as JSON. `is_field` marks a piece of a field of JSON."""

    kind: Literal["delta"] = "delta"
    number: int
    request: int
    is_field: bool = False


class ToolDescription(BaseModel):
    """One tool. `parameters` is the JSON schema of its arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool_id: str
    summary: str
    guide: str
    parameters: dict[str, Any]
    returns: str
    effect: Effect
    strategy: Strategy
    timeout_s: float
    untrusted: bool
    in_loop: bool
    in_programs: bool
    requires_approval: bool
    addresses: tuple[str, ...]
    asks_after_untrusted: bool


class OperationDescription(BaseModel):
    """One operation of a workflow. `parameters` is the JSON schema of its arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    summary: str
    parameters: dict[str, Any]
    roles: tuple[str, ...]
    effect: Effect
    timeout_s: float


class McpTools(BaseModel):
    """One entry of MCP_TOOL_SPECS; the tool `*` means all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_id: str
    alias: str
    tools: tuple[str, ...] = ("*",)


class Described(Message):
    """The bundle was loaded; its host now takes calls. The rest is the content: a BundleDescription."""

    kind: Literal["described"] = "described"


class BundleDescription(BaseModel):
    """The content of Described."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tools: tuple[ToolDescription, ...] = ()
    mcp: tuple[McpTools, ...] = ()
    has_workflow: bool = False
    hooks: tuple[Hook, ...] = ()
    operations: tuple[OperationDescription, ...] = ()


class Failed(Message):
    """The bundle can't be loaded."""

    kind: Literal["failed"] = "failed"
    error: str = Field(max_length=SENT_ERROR_CHARS)


class Beat(Message):
    """The host's event loop runs."""

    kind: Literal["beat"] = "beat"


class RenderedFile(BaseModel):
    """A text for the person that becomes a file; see everturn_sdk.Rendered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filename: str
    mime: str = ""


class FieldProblem(BaseModel):
    """What is wrong with one argument, by the path of its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = Field(max_length=1_000)
    message: str = Field(max_length=300)


class Ended(Message):
    """A call ended. With `ok` the content is its value, as JSON, such as the text of a rendered file. A `notice` is the
    author's own text for the model, or for the caller of an operation. A call with `invalid` arguments was not made;
    `fields` are those of an operation. With `raised` it is unknown what the call has done, and `is_exhausted` says
    whether the process has too little memory, files or threads left to go on."""

    kind: Literal["ended"] = "ended"
    number: int
    status: Literal["ok", "notice", "invalid", "raised"]
    rendered: RenderedFile | None = None
    error: str = Field(default="", max_length=SENT_ERROR_CHARS)
    fields: tuple[FieldProblem, ...] = Field(default=(), max_length=MAX_FIELDS)
    is_exhausted: bool = False


class Event(Message):
    """Something that the person sees while a call runs."""

    kind: Literal["event"] = "event"
    number: int
    event: Literal["progress", "message", "data"]
    text: str = Field(default="", max_length=SENT_TEXT_CHARS)
    data: dict[str, Any] | None = None


class Log(Message):
    """A line for the operator's log."""

    kind: Literal["log"] = "log"
    number: int
    text: str = Field(max_length=SENT_TEXT_CHARS)


class SourceRow(BaseModel):
    """A source that answers of the conversation can cite; `url` is a web address."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    title: str = ""
    text: str = ""
    """What the source says; the agent can read it by the number of the source."""
    published_time_iso: str | None = None
    """Such as `2026-03-01` or `2026-03-01T12:00:00Z`."""


class Claim(Message):
    """Adds sources to the conversation; the answer has their numbers. The content is a JSON list of SourceRow."""

    kind: Literal["claim"] = "claim"
    number: int
    request: int


class PutArtifact(Message):
    """Stores the content as a file of the turn; the answer is its ref."""

    kind: Literal["put_artifact"] = "put_artifact"
    number: int
    request: int
    path: str
    description: str = ""
    visibility: Literal["internal", "external"] = "external"


class Ask(Message):
    """What a running workflow asks of its worker, or a call of a tool, which can ask for models only. The content are
    the bytes of a file to store."""

    kind: Literal["ask"] = "ask"
    number: int
    request: int
    what: Question
    arguments: dict[str, Any] = {}


class Invoked(Message):
    """What an invoked function has returned is the content, as JSON; `error` says why there is nothing."""

    kind: Literal["invoked"] = "invoked"
    number: int
    request: int
    error: str = Field(default="", max_length=SENT_ERROR_CHARS)


ToHost = Begin | Call | Operate | Run | Invoke | Cancel | Answer | Delta
ToWorker = Described | Failed | Beat | Ended | Event | Log | Claim | PutArtifact | Ask | Invoked
TO_HOST: Final[TypeAdapter[ToHost]] = TypeAdapter(Annotated[ToHost, Field(discriminator="kind")])
TO_WORKER: Final[TypeAdapter[ToWorker]] = TypeAdapter(Annotated[ToWorker, Field(discriminator="kind")])
SOURCES: Final[TypeAdapter[tuple[SourceRow, ...]]] = TypeAdapter(tuple[SourceRow, ...])


class FrameError(Exception):
    """What arrived is no frame of this protocol, or what was to be sent is too long for one."""


def encode_message(message: Message) -> bytes:
    """The frame of a message. Raises FrameError if it is too long or no JSON."""
    try:
        body = message.model_dump_json().encode()
    except (ValueError, TypeError) as error:
        raise FrameError(f"a message can't be written as JSON: {error}") from error
    if len(body) > MAX_MESSAGE_BYTES:
        raise FrameError(f"a message has {len(body)} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
    _check_values(body)
    return _LENGTH.pack(len(body)) + body


def read_content(content: bytes) -> Any:
    """The value of a content that is JSON, None if there is none. Called in threads. Raises ValueError."""
    if has_more_values(content, MAX_CONTENT_VALUES):
        raise ValueError(f"it has more than {MAX_CONTENT_VALUES} values")
    return from_json(content, allow_inf_nan=False) if content else None


def _check_values(body: bytes) -> None:
    if has_more_values(body, MAX_VALUES):
        raise FrameError(f"a message has more than {MAX_VALUES} values")


class Connection(asyncio.Protocol):
    """One end of the socket. `receive` gets each message with its content, in order, and must not wait; `closed` is
    called once, with what was wrong or an empty text at the end of the stream."""

    def __init__(
        self,
        messages: TypeAdapter[Any],
        receive: Callable[[Any, bytes], None],
        closed: Callable[[str], None],
    ) -> None:
        self._messages = messages
        self._receive = receive
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._content = bytearray()
        self._paused = False
        self._spent_s = 0.0
        """On reading, since the last pause."""
        self._is_closed = False
        self._room = asyncio.Event()
        self._room.set()
        self._sending = asyncio.Lock()

    def send(self, message: Message) -> None:
        """Queue a message without content. Raises FrameError; after the end of the connection it does nothing."""
        self._write(encode_message(message))

    async def send_content(self, message: Message, content: bytes) -> None:
        """Send a content and then the message that owns it. Raises FrameError if it is too long."""
        if len(content) > MAX_CONTENT_BYTES:
            raise FrameError(f"{len(content)} bytes can't be sent; at most {MAX_CONTENT_BYTES} are allowed")
        frame = encode_message(message.model_copy(update={"content_bytes": len(content)}))
        async with self._sending:
            for start in range(0, len(content), PART_BYTES):
                part = content[start : start + PART_BYTES]
                await self._room.wait()
                self._write(_LENGTH.pack(_PART_BIT | len(part)) + part)
            self._write(frame)

    def close(self) -> None:
        self._end("")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        # A process that was killed resets its connections: that is an end like others.
        del exc
        self._end("")

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if not self._paused:
            self._read_some()

    def _read_some(self) -> None:
        self._paused = False
        try:
            while self._spent_s < _SLICE_S:
                began_s = time.thread_time()
                if self._is_closed or not self._read_frame():
                    return
                self._spent_s += time.thread_time() - began_s
        except (FrameError, ValidationError) as error:
            self._end(f"what it sent is no message: {_shorten(error)}")
            return
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()
        asyncio.get_running_loop().call_later(_PAUSES * self._spent_s, self._continue)
        self._spent_s = 0.0

    def _continue(self) -> None:
        if not self._is_closed and self._transport is not None:
            self._transport.resume_reading()
            self._read_some()

    def _read_frame(self) -> bool:
        """Handle the next frame; false if it has not arrived as a whole."""
        if len(self._unread) < _LENGTH.size:
            return False
        word: int = _LENGTH.unpack_from(self._unread)[0]
        is_part, size = bool(word & _PART_BIT), word & ~_PART_BIT
        limit = PART_BYTES if is_part else MAX_MESSAGE_BYTES
        if size > limit:
            raise FrameError(f"a frame of {size} bytes; at most {limit} are allowed")
        end = _LENGTH.size + size
        if len(self._unread) < end:
            return False
        body = bytes(self._unread[_LENGTH.size : end])
        del self._unread[:end]
        if not is_part:
            _check_values(body)
            message = self._messages.validate_json(body)
            self._receive(message, self._take_content(message.content_bytes))
        elif len(self._content) + size > MAX_CONTENT_BYTES:
            raise FrameError(f"a content of more than {MAX_CONTENT_BYTES} bytes")
        else:
            self._content += body
        return True

    def _take_content(self, size: int) -> bytes:
        if size == 0:
            return b""
        if size != len(self._content):
            raise FrameError(f"a content of {len(self._content)} bytes instead of {size}")
        content, self._content = bytes(self._content), bytearray()
        return content

    def _write(self, frame: bytes) -> None:
        # uvloop raises an error if its transport is closing, which `connection_lost` reports only later.
        if not self._is_closed and self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def _end(self, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._room.set()
        if self._transport is not None:
            self._transport.abort()
        self._closed(reason)


def _shorten(error: Exception) -> str:
    if isinstance(error, ValidationError):
        if error.error_count() > _MAX_SHOWN_ERRORS:
            return f"it has {error.error_count()} errors"
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part)[:40] for part in first["loc"][:4])
        return f"{place}: {first['msg'][:200]}" if place else first["msg"][:200]
    return str(error)[:200]

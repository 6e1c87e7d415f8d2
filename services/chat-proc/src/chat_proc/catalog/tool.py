"""What a tool is: its name, its parameters, what repeating a call would do, and how one call runs."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from everturn.core.errors import Conflict, Invalid, NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.core.leases import Lease
from everturn.events.model import AnyEvent, ChatTool
from everturn.files.model import Artifact
from everturn.timeline.blocks import Block, BlockType
from everturn.timeline.bodies import Body
from everturn.timeline.sources import PoolFull, Source, SourceDraft
from everturn.turns.commits import Effect, UsageEvent

PREVIEW_CHARS = 12_000
"""Of a tool's result, unless the tool bounds its result itself to something else."""

Strategy = Literal["exploration", "exploitation", "neutral", "unknown"]
"""What a call is for: finding out, making something of what is known, or neither. It decides what may share a round."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """`tool_id` is `alias.name`. `params` checks the arguments, in the order in which a model should write them.

    `summary` is one line for the prompt's list; `guide` the Markdown that teaches its use. `takes_code` tools get the
    code channel. `cancellable` tools are ended by a steer; those that `keep_work` are asked to end and still give what
    they have. `timeout_s` bounds one call. A result text of more than `result_chars` characters is stored whole, and
    the timeline shows a preview of it.

    Programs of the sandbox may call a tool only where `in_programs` says so, the loop only where `in_loop` does.
    `returns` says what a program gets from it. What an `untrusted` tool gives was written by strangers.
    A person is asked before each call of the loop to one that `requires_approval`; programs can't call such a tool.

    `addresses` names the parameters that hold web addresses which the tool requests, each a text or a list of texts:
    the operator's rules for addresses apply to them, in programs too. A tool that `asks_after_untrusted` asks a person
    once the conversation has read words of strangers, because it keeps or sends what those may have asked for.
    """

    tool_id: str
    summary: str
    guide: str
    params: type[BaseModel]
    effect: Effect
    strategy: Strategy = "unknown"
    takes_code: bool = False
    cancellable: bool = True
    keeps_work: bool = False
    timeout_s: float = 60.0
    result_chars: int = PREVIEW_CHARS
    in_programs: bool = False
    in_loop: bool = True
    returns: str = "text"
    untrusted: bool = False
    requires_approval: bool = False
    addresses: tuple[str, ...] = ()
    asks_after_untrusted: bool = False


class SourcePool(Protocol):
    """The sources of a conversation. What is claimed is stored in the commit that holds the result of the call."""

    @property
    def rows(self) -> Sequence[Source]:
        """All rows by `sid`, each with the beginning of its text."""
        ...

    def claim(self, drafts: Sequence[SourceDraft]) -> tuple[Source, ...]:
        """The rows of these sources, one for each; new ones get the next numbers.

        It never waits, so several tools may claim at once. Raises Invalid, and claims nothing, when a draft has no
        usable address or the pool is full.
        """
        ...

    async def load_text(self, sid: int) -> str:
        """The whole text of a source, empty if none was fetched. Raises NotFound, Unavailable."""
        ...


class NoSourcePool:
    """Where there is no conversation that could keep sources."""

    rows: Sequence[Source] = ()

    def claim(self, drafts: Sequence[SourceDraft]) -> tuple[Source, ...]:
        raise PoolFull(f"There is none here for {len(drafts)} sources.")

    async def load_text(self, sid: int) -> str:
        raise NotFound(f"source {sid}")


NO_SOURCE_POOL: SourcePool = NoSourcePool()


class LiveTurn(Protocol):
    """The turn while a call runs: what the call may do besides giving its outcome."""

    @property
    def lease(self) -> Lease: ...

    def lease_age_s(self) -> float:
        """Seconds since the lease was last known to be ours."""
        ...

    def emit(self, data: AnyEvent) -> None:
        """Tell clients at once. What no commit repeats is lost with the worker."""
        ...

    def book(self, usage: UsageEvent) -> None:
        """Something cost money; the next commit tells of it."""
        ...


class NoLiveTurn:
    """Where no turn runs: nobody could be told."""

    @property
    def lease(self) -> Lease:
        raise Unavailable("No turn runs here.")

    def lease_age_s(self) -> float:
        raise Unavailable("No turn runs here.")

    def emit(self, data: AnyEvent) -> None:
        raise Unavailable(f"No turn runs here that could tell of {data.type}.")

    def book(self, usage: UsageEvent) -> None:
        raise Unavailable(f"No turn runs here that could book {usage.model}.")


NO_LIVE_TURN: LiveTurn = NoLiveTurn()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a call happens. `blocks` are all of the conversation's blocks up to and with the call."""

    principal: Principal
    conversation_id: ConversationId
    turn_id: TurnId
    round: int
    blocks: Sequence[Block]
    now: str
    pool: SourcePool = NO_SOURCE_POOL
    live: LiveTurn = NO_LIVE_TURN


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call with checked parameters; `code` is the program from the code channel.

    When `stop` is set, a tool that keeps its work ends and gives what it has; others are cancelled.
    """

    call_id: CallId
    params: BaseModel
    code: str | None
    context: ToolContext
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Record:
    """A block the tool wants on the timeline after its result. `call_id` names another call than the tool's own."""

    type: BlockType
    ref: str
    body: Body
    call_id: CallId | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call gave. `text` is for the model, whole; the caller stores a long one and shows a preview.

    The bytes of `artifacts` are in the object store before it is returned. An error is an outcome, not an exception.
    `value` is what a program gets, plain JSON values and bytes, where that is not the text. `untrusted` marks an
    outcome with words of strangers in it, whatever the tool is otherwise.
    """

    status: Literal["ok", "error"]
    text: str
    artifacts: tuple[Artifact, ...] = ()
    records: tuple[Record, ...] = ()
    data: dict[str, Any] | None = None
    value: object = None
    untrusted: bool = False


class Tool(Protocol):
    """One tool; it holds no state between calls."""

    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, call: ToolCall) -> ToolOutcome:
        """Do it. Cancelling the awaiting task stops it within 2 s. An exception becomes an error outcome."""
        ...


# Reading the source pool of any of the person's conversations.


class ConversationSources(Protocol):
    """A part of Timelines. Another person's conversation has no sources."""

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        """The rows by `sid`, without their whole texts."""
        ...

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        """The whole text of one source; empty if none was fetched. Raises NotFound when there is no such row."""
        ...


# What a tool tells clients while it works, within caps: a running tool must not flood a person, nor the stream.

MAX_EVENTS = 100
"""Of one call."""
MAX_TEXT_CHARS = 2_000
MAX_DATA_BYTES = 8_192
"""Of one event, as JSON."""


class ToolEvents:
    """The events of one call. They go out through the worker, which alone numbers events; nothing stores them."""

    def __init__(self, call: ToolCall, tool_id: str) -> None:
        self._live = call.context.live
        self._call_id = call.call_id
        self._tool_id = tool_id
        self._left = MAX_EVENTS
        self._closed = False

    def progress(self, text: str) -> None:
        """Say what goes on now; a long text is cut. Raises Conflict after the call, and after too many events."""
        self._emit("progress", text[:MAX_TEXT_CHARS])

    def message(self, text: str) -> None:
        """Say something to the person; otherwise as `progress`."""
        self._emit("message", text[:MAX_TEXT_CHARS])

    def data(self, data: Mapping[str, Any]) -> None:
        """Tell a client that knows this tool. Raises Invalid when it is no JSON or too large; or as `progress`."""
        try:
            encoded = json.dumps(dict(data), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Invalid(f"The data of an event must be JSON: {error}") from error
        if len(encoded) > MAX_DATA_BYTES:
            raise Invalid(f"The data of an event has {len(encoded)} bytes, at most {MAX_DATA_BYTES} are allowed.")
        self._emit("data", "", json.loads(encoded))

    def close(self) -> None:
        """The call is over: what a task that was left behind still says reaches nobody."""
        self._closed = True

    def _emit(
        self, kind: Literal["progress", "message", "data"], text: str, data: dict[str, Any] | None = None
    ) -> None:
        if self._closed:
            raise Conflict("The call is over.")
        if self._left <= 0:
            raise Conflict(f"A call tells of at most {MAX_EVENTS} events.")
        self._left -= 1
        clean = text.encode("utf-8", "replace").decode()
        self._live.emit(ChatTool(call_id=self._call_id, tool_id=self._tool_id, kind=kind, text=clean, data=data))

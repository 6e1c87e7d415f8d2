"""The definition of a tool: its name, its parameters, the effect of repeating a call, and how one call runs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ValidationError

from everturn.core.errors import Conflict, Invalid
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.events.model import AnyEvent, ChatTool
from everturn.files.model import Artifact
from everturn.skills.model import NO_SKILLS, Skills
from everturn.timeline.blocks import Block, BlockType, Body
from everturn.timeline.seen_urls import OutsideFacts
from everturn.timeline.sources import Source, SourceDraft
from everturn.turns.model import Effect, Lease, UsageEvent

PREVIEW_CHARS = 12_000
"""Preview length of a tool's result, unless the tool sets another limit."""

Strategy = Literal["exploration", "exploitation", "neutral", "unknown"]
"""The purpose of a call: finding information, producing something from it, or neither. It decides what may share a
round."""

MAX_EVENTS = 100
"""Maximum per call."""
MAX_TEXT_CHARS = 2_000
MAX_DATA_BYTES = 8_192
"""Size limit of one event, as JSON."""

MAX_SHOWN_ERRORS = 5
MAX_NAME_CHARS = 80


@dataclass(frozen=True, slots=True)
class ConnectLink:
    """Where a person connects an account of their own: the name of the service, and an address that works once. `why`
    is a sentence for them if they have connected one before."""

    title: str
    url: str
    why: str = ""


MAX_DETAILS_CHARS = 12_000
"""Of a call that a person approves. People don't read more, and it is part of every view of the turn."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call that a person is going to be asked about, with checked parameters."""

    call_id: CallId
    params: BaseModel
    principal: Principal
    conversation_id: ConversationId
    turn_id: TurnId


@dataclass(frozen=True, slots=True)
class CallDetails:
    """What a call would do, for the person who decides on it: lines of plain text with MAX_DETAILS_CHARS at most.
    `digest` identifies what they describe: the call gets it as `approved`, and does that or nothing."""

    text: str
    digest: str


class Connector(Protocol):
    """For a tool that works with an account of the person."""

    async def find_link(
        self, call_id: CallId, principal: Principal, conversation_id: ConversationId
    ) -> ConnectLink | None:
        """A link for this call; None if the person is connected, or no link can be made. The call then says why."""
        ...


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """`tool_id` is `alias.name`. `params` validates the arguments, in the order in which a model should write them.

    `summary` is one line for the prompt's list; `guide` the Markdown that teaches its use. `takes_code` tools get the
    code channel. `cancellable` tools are ended by a steer or a cancel; one with
    `returns_partial_work` gets a signal to stop and returns what it has. `timeout_s` bounds one call. A result text of
    more than `result_chars` characters is stored whole, and the timeline shows a preview of it.

    Programs in the sandbox may call a tool only if `in_programs` is set, the loop only if `in_loop` is. `returns`
    describes the value for programs. The output of an `untrusted` tool was written by third parties. A person approves
    each call of the loop to one that `requires_approval`; programs can't call such a tool.

    `shows_schema` adds the schema of the parameters to the guide where tools are not declared to the model, for a guide
    that does not describe them.

    `recorded_defaults` are parameters whose default is recorded with a call that does not name them, because another
    worker, which may repeat the call, can have another default.

    `effect_of` says the effect of a call by its parameters, where it depends on them.

    Calls of a tool that `may_detach` can go on while their turn waits without a worker: see CallDetached. `detaches`
    says which, by their parameters, if not all of them can.

    A tool with a `connector` uses an account of the person. Its calls wait until the person has connected one.

    `describe_call` says to the person who approves a call what its parameters don't. It changes nothing outside, and
    raises an EverturnError with a sentence for the model if the call can't be made: then nobody is asked.

    `addresses` names the parameters with web addresses that the tool requests, each a string or a list of strings: the
    operator's rules for addresses apply to them, in programs too. With `only_hosts` no others are requested; each is a
    name, or `*.name` for all names below it. A tool that `asks_after_untrusted` needs approval once the conversation
    has read untrusted text, because it stores or sends what that text may have asked for.
    """

    tool_id: str
    summary: str
    guide: str
    params: type[BaseModel]
    effect: Effect
    strategy: Strategy = "unknown"
    takes_code: bool = False
    cancellable: bool = True
    returns_partial_work: bool = False
    timeout_s: float = 60.0
    result_chars: int = PREVIEW_CHARS
    in_programs: bool = False
    in_loop: bool = True
    returns: str = "text"
    untrusted: bool = False
    requires_approval: bool = False
    addresses: tuple[str, ...] = ()
    only_hosts: tuple[str, ...] = ()
    asks_after_untrusted: bool = False
    shows_schema: bool = False
    connector: Connector | None = None
    recorded_defaults: tuple[str, ...] = ()
    may_detach: bool = False
    detaches: Callable[[Mapping[str, Any]], bool] | None = None
    effect_of: Callable[[Mapping[str, Any]], Effect] | None = None
    describe_call: Callable[[Proposal], Awaitable[CallDetails]] | None = None

    def __post_init__(self) -> None:
        """Calls that run side by side end in any order, so none of them can be left."""
        if self.may_detach and self.strategy in ("exploration", "unknown"):
            raise Invalid(f"{self.tool_id} can't detach calls that run beside others.")

    def find_effect(self, params: Mapping[str, Any]) -> Effect:
        """The effect of repeating a call with these parameters."""
        return self.effect_of(params) if self.effect_of else self.effect

    def can_detach(self, params: Mapping[str, Any]) -> bool:
        """Whether a call with these parameters can go on without its turn."""
        return self.may_detach and (self.detaches is None or self.detaches(params))


class SourcePool(Protocol):
    """The sources of a conversation. Claimed sources are stored in the commit with the result of the call."""

    @property
    def rows(self) -> Sequence[Source]:
        """All rows by `sid`, each with the beginning of its text."""
        ...

    def claim(self, drafts: Sequence[SourceDraft]) -> tuple[Source, ...]:
        """The rows of these sources, one for each; new ones get the next numbers.

        It never waits, so several tools can claim concurrently. Raises Invalid, and claims nothing, if a draft has no
        usable address or the pool is full.
        """
        ...

    async def load_text(self, sid: int) -> str:
        """The whole text of a source, empty if none was fetched. Raises NotFound, Unavailable."""
        ...


class LiveTurn(Protocol):
    """The turn of a running call: what the call can do in addition to returning its outcome."""

    @property
    def lease(self) -> Lease: ...

    def lease_age_s(self) -> float:
        """Seconds since the lease was last known to be ours."""
        ...

    def emit(self, data: AnyEvent) -> None:
        """Send an event to clients at once. Events that no commit repeats are lost with the worker."""
        ...

    def record_usage(self, usage: UsageEvent) -> None:
        """Record the usage of a model call; the next commit writes it."""
        ...

    def explain_cap(self) -> str:
        """Why the turn can make no more model calls, as a sentence; empty if it can."""
        ...

    def keep_exchange(self, run: str, number: int, size: int, build: Callable[[], bytes]) -> None:
        """Save the record of a model call of a run beside the turn; never waits. `build` takes time in proportion to
        `size` bytes."""
        ...


class ModelCalls(Protocol):
    """Models for the functions of bundles. The turn records what their calls cost."""

    async def answer(
        self, what: str, arguments: Mapping[str, Any], send: Callable[[Mapping[str, Any], bool], Awaitable[None]]
    ) -> object:
        """The answer to a request of `everturn_sdk.Models`; `send` gets the pieces of a reply before it. Raises Invalid
        if there is none."""
        ...


class EarlierFacts:
    """What the blocks before the loaded ones say about the outside world, once the call policy has read them. Owned by
    one turn and shared by its calls: reading up to 16 MB again for each of them would take 0.2 s of CPU."""

    def __init__(self) -> None:
        self.facts: OutsideFacts | None = None
        self.loading = asyncio.Lock()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of a call. `blocks` are the conversation's blocks up to and including the call, `skills` those with
    which its turn began."""

    principal: Principal
    conversation_id: ConversationId
    turn_id: TurnId
    round: int
    blocks: Sequence[Block]
    now: str
    pool: SourcePool
    live: LiveTurn
    earlier: EarlierFacts = field(default_factory=EarlierFacts, repr=False)
    skills: Skills = NO_SKILLS
    models: ModelCalls | None = field(default=None, repr=False)
    """None where no tool of a bundle is called."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call with checked parameters; `code` is the program from the code channel.

    If `stop` is set, a tool that keeps its work ends and returns what it has; others are cancelled. `approved` is the
    digest of the details that a person has approved, for a tool with `describe_call`; empty without them.
    """

    call_id: CallId
    params: BaseModel
    code: str | None
    context: ToolContext
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    approved: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A block that the tool adds to the timeline after its result. `call_id` names a call other than the tool's own."""

    type: BlockType
    ref: str
    body: Body
    call_id: CallId | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a call. `text` is the whole text for the model; the caller stores a long one and shows a preview.

    The bytes of `artifacts` are in the object store before it is returned. An error is an outcome, not an exception.
    `value` is the value for a program, plain JSON values and bytes, if it is not the text. `untrusted` marks an outcome
    with text of third parties, even if the tool is trusted. `duration_ms` is how long a call took that went on without
    its turn; the caller measures the others.
    """

    status: Literal["ok", "error"]
    text: str
    artifacts: tuple[Artifact, ...] = ()
    records: tuple[Record, ...] = ()
    data: dict[str, Any] | None = None
    value: object = None
    untrusted: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a function of the operator made for the person, such as a page of HTML: a file of the turn.

    `filename` is relative to `outputs/`. Without a `mime`, the type follows from the name.
    """

    filename: str
    text: str
    mime: str = ""


class CallDetached(Exception):
    """The call goes on without its turn, which can wait for it without a worker. The call is made again when it may
    have ended, and then returns its outcome or raises this again."""


class CallPostponed(Exception):
    """An outage hides whether the call goes on, or what it has returned. Its turn goes back into the queue, whatever
    else it could wait for, and the call is made again."""


class ToolRaised(Exception):
    """The code of a tool raised an exception, which the text describes."""


class Tool(Protocol):
    """One tool; it keeps no state between calls."""

    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, call: ToolCall) -> ToolOutcome:
        """Run the call. Cancelling the awaiting task stops it within 2 s. An exception becomes an error outcome, except
        CallDetached and CallPostponed, which only a tool that `may_detach` raises."""
        ...


class ConversationSources(Protocol):
    """A part of Timelines. Another person's conversation has no sources."""

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        """The rows by `sid`, without their whole texts."""
        ...

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        """The whole text of one source; empty if none was fetched. Raises NotFound if there is no such row."""
        ...


class ToolEvents:
    """The events of one call. They are sent by the worker, because only it numbers events; they are not stored. They
    are limited: a tool must not flood a person or the stream."""

    def __init__(self, call: ToolCall, tool_id: str) -> None:
        self._live = call.context.live
        self._call_id = call.call_id
        self._tool_id = tool_id
        self._left = MAX_EVENTS
        self._closed = False

    def progress(self, text: str) -> None:
        """Report progress; a long text is cut. Raises Conflict after the call, and after too many events."""
        self._emit("progress", text[:MAX_TEXT_CHARS])

    def message(self, text: str) -> None:
        """Send a message to the person; otherwise like `progress`."""
        self._emit("message", text[:MAX_TEXT_CHARS])

    def data(self, data: Mapping[str, Any]) -> None:
        """Send data to a client that supports this tool. Raises Invalid if it is not JSON or too large; otherwise like
        `progress`."""
        try:
            encoded = json.dumps(dict(data), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Invalid(f"The data of an event must be JSON: {error}") from error
        if len(encoded) > MAX_DATA_BYTES:
            raise Invalid(f"The data of an event has {len(encoded)} bytes; at most {MAX_DATA_BYTES} are allowed.")
        self._emit("data", "", json.loads(encoded))

    def close(self) -> None:
        """End the call: later events of a task that was left behind are rejected."""
        self._closed = True

    def _emit(
        self, kind: Literal["progress", "message", "data"], text: str, data: dict[str, Any] | None = None
    ) -> None:
        if self._closed:
            raise Conflict("The call has ended.")
        if self._left <= 0:
            raise Conflict(f"A call can send at most {MAX_EVENTS} events.")
        self._left -= 1
        clean = text.encode("utf-8", "replace").decode()
        self._live.emit(ChatTool(call_id=self._call_id, tool_id=self._tool_id, kind=kind, text=clean, data=data))


class ToolRegistry:
    """Built once from the tools that a worker offers; their order is the order in the prompt."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.spec.tool_id: tool for tool in tools}
        if len(self._tools) < len(tools):
            raise Invalid("Two tools have the same id.")

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def without(self, tool_ids: Collection[str]) -> "ToolRegistry":
        """A registry of the other tools."""
        return ToolRegistry([tool for tool_id, tool in self._tools.items() if tool_id not in tool_ids])

    def plus(self, tools: Collection[Tool]) -> "ToolRegistry":
        """A registry with these tools too; each takes the place of one with its id."""
        added = {tool.spec.tool_id: tool for tool in tools}
        return ToolRegistry([*{**self._tools, **added}.values()])

    def find(self, tool_id: str) -> Tool:
        """Raises Invalid with a sentence for the model if there is no such tool."""
        return self._find(tool_id)

    def try_spec(self, tool_id: str) -> ToolSpec | None:
        """The tool of this id; None for one that this worker does not offer."""
        tool = self._tools.get(tool_id)
        return None if tool is None else tool.spec

    def spec(self, tool_id: str) -> ToolSpec:
        """Raises Invalid with a sentence for the model if there is no such tool."""
        return self._find(tool_id).spec

    def check_params(self, tool_id: str, params: Mapping[str, object], *, strict: bool = False) -> BaseModel:
        """Raises Invalid with a sentence for the model if the arguments are invalid.

        A model that writes "5" means 5. In a program this is an error, which is reported (`strict`).
        """
        spec = self.spec(tool_id)
        try:
            return validate_strictly(spec.params, params) if strict else spec.params.model_validate(dict(params))
        except ValidationError as error:
            raise Invalid(_describe_errors(spec, error)) from error

    async def run(self, tool_id: str, call: ToolCall) -> ToolOutcome:
        """Call a tool with parameters returned by `check_params`."""
        return await self._find(tool_id).run(call)

    def _find(self, tool_id: str) -> Tool:
        tool = self._tools.get(tool_id)
        if tool is None:
            raise Invalid(self._unknown(tool_id[:MAX_NAME_CHARS]))
        return tool

    def _unknown(self, tool_id: str) -> str:
        known = list(self._tools)
        name = tool_id.rpartition(".")[2]
        like = [known_id for known_id in known if known_id.rpartition(".")[2] == name]
        guess = (like or get_close_matches(tool_id, known, n=1, cutoff=0.5))[:1]
        hint = f" Did you mean {guess[0]}?" if guess else ""
        return f"The tool {tool_id!a} does not exist.{hint} The tools are: {', '.join(known) or 'none'}."


def validate_strictly(model: type[BaseModel], params: Mapping[str, object]) -> BaseModel:
    """No value is converted to another type. Raises pydantic.ValidationError.

    Arguments are sent as JSON, which has no dates, sets or enums: strings and lists are converted to these. Bytes are
    sent separately, so arguments with bytes are validated directly.
    """
    try:
        sent = json.dumps(dict(params))
    except TypeError:
        return model.model_validate(dict(params), strict=True)
    return model.model_validate_json(sent, strict=True)


def _describe_errors(spec: ToolSpec, error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    named = "; ".join(f"{_place(problem['loc'])}: {problem['msg']}" for problem in problems[:MAX_SHOWN_ERRORS])
    more = f"; and {len(problems) - MAX_SHOWN_ERRORS} more" if len(problems) > MAX_SHOWN_ERRORS else ""
    fields = ", ".join(field.alias or name for name, field in spec.params.model_fields.items()) or "none"
    return f"The parameters of {spec.tool_id} are invalid: {named}{more}. Its parameters are, in this order: {fields}."


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:MAX_NAME_CHARS] for part in loc) or "the parameters as a whole"

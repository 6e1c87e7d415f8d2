"""A tool of the loop: what it is called, what it takes, what repeating it would do, and how one call runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from everturn.errors import NotFound
from everturn.model.artifacts import Artifact
from everturn.model.block_bodies import Body
from everturn.model.blocks import Block, BlockType
from everturn.model.commits import Effect
from everturn.model.identity import Principal
from everturn.model.ids import CallId, ConversationId, TurnId
from everturn.model.llm.source_pool import PoolFull, SourceDraft
from everturn.model.llm.sources import Source

PREVIEW_CHARS = 12_000
"""Of a tool's result, unless the tool bounds its result itself to something else."""

Strategy = Literal["exploration", "exploitation", "neutral", "unknown"]
"""What a call is for: finding out, making something of what is known, or neither. It decides what may share a round."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """`tool_id` is `alias.name`. `params` checks the arguments, in the order in which a model should write them.

    `summary` is one line for the prompt's list; `guide` the Markdown that teaches its use. `takes_code` tools get the
    code channel. `cancellable` tools are cancelled by a steer. `timeout_s` bounds one call. A result text of more than
    `result_chars` characters is stored whole, and the timeline shows a preview of it.
    """

    tool_id: str
    summary: str
    guide: str
    params: type[BaseModel]
    effect: Effect
    strategy: Strategy = "unknown"
    takes_code: bool = False
    cancellable: bool = True
    timeout_s: float = 60.0
    result_chars: int = PREVIEW_CHARS


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


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call with checked parameters; `code` is the program from the code channel."""

    call_id: CallId
    params: BaseModel
    code: str | None
    context: ToolContext


@dataclass(frozen=True, slots=True)
class Record:
    """A block the tool wants on the timeline after its result."""

    type: BlockType
    ref: str
    body: Body


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call gave. `text` is for the model, whole; the caller stores a long one and shows a preview.

    The bytes of `artifacts` are in the object store before it is returned. An error is an outcome, not an exception.
    """

    status: Literal["ok", "error"]
    text: str
    artifacts: tuple[Artifact, ...] = ()
    records: tuple[Record, ...] = ()
    data: dict[str, Any] | None = None


class Tool(Protocol):
    """One tool; it holds no state between calls."""

    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, call: ToolCall) -> ToolOutcome:
        """Do it. Cancelling the awaiting task stops it within 2 s. An exception becomes an error outcome."""
        ...

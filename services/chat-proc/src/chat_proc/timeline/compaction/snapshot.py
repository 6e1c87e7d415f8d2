"""A conversation at a round boundary as compaction sees it: what is shown of each block, and how long a request is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from chat_proc.timeline.compaction.cut import Shown
from chat_proc.timeline.compaction.shown_refs import KnownRefs, known_refs
from chat_proc.timeline.compaction.thresholds import ContextLimits
from chat_proc.timeline.view import TimelineView
from chat_proc.timeline.visibility import Visibility
from everturn.model.blocks import Block, BlockDraft, chain_blocks
from everturn.model.ids import TurnId
from everturn.model.llm.tokens import CharsPerToken


@dataclass(frozen=True)
class Snapshot:
    """`fixed_tokens` is the part of a request that is not timeline. `round` is the last one whose results are there."""

    blocks: tuple[Block, ...]
    turn_id: TurnId
    round: int
    now: str
    fixed_tokens: int
    limits: ContextLimits
    ratio: CharsPerToken

    @cached_property
    def shown(self) -> tuple[Shown, ...]:
        """The blocks that the model sees, in the order in which it sees them."""
        items = TimelineView(self.blocks).items
        return tuple(Shown(item.block, item.text, self.tokens_of(item.text)) for item in items)

    @cached_property
    def tokens(self) -> int:
        """Estimated tokens of a request."""
        return self.fixed_tokens + self.ratio.tokens_for(sum(len(item.text) for item in self.shown))

    @cached_property
    def known(self) -> KnownRefs:
        """Every ref that the model was shown, and those of the blocks behind what it was shown."""
        return known_refs(self.blocks, (item.text for item in self.shown))

    @cached_property
    def _visibility(self) -> Visibility:
        visibility = Visibility()
        for block in self.blocks:
            visibility.learn(block)
        return visibility

    def tokens_of(self, text: str) -> int:
        return self.ratio.tokens_for(len(text))

    def hidden(self, block: Block) -> str | None:
        """What a hide has put in the block's place."""
        return self._visibility.replacement_of(block)

    def plus(self, drafts: Sequence[BlockDraft]) -> "Snapshot":
        """The same with these blocks appended, as they will be once they are committed."""
        appended = chain_blocks(drafts, next_seq=self.blocks[-1].seq + 1, last_hash=self.blocks[-1].hash)
        return replace(self, blocks=(*self.blocks, *appended))

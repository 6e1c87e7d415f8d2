"""Renders a timeline to provider messages, with the same bytes in every request, and places the cache points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chat_proc.timeline.attachments import MediaBudget, block_media, can_see
from chat_proc.timeline.view import Break, TimelineView, VisibleBlock
from everturn.models.port import MediaPart, ModelTraits, Part, PromptMessage, TextPart
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import Block, BlockType
from everturn.timeline.forms import UNSEEN, Form
from everturn.timeline.next_step import DECISION_TYPES

# Where a request asks the provider to cache: after the system text, and at up to three places of the timeline. A point
# lies on stable text: never on a hidden or light block, and never on an open round.

PRE_TAIL_ROUNDS = 4
"""Rounds between the second point and the tail: after a change of the last rounds, requests still hit the cache before
them."""
MIN_ROUNDS = 2
_STABLE = frozenset({Form.FULL, Form.CARD, Form.ROW})


@dataclass(frozen=True, slots=True)
class CachePoints:
    """Indexes of items. `tail` ends the last completed round, or the turn's opening if no round is completed."""

    previous_turn: int | None = None
    pre_tail: int | None = None
    tail: int | None = None

    @property
    def indexes(self) -> frozenset[int]:
        return frozenset(at for at in (self.previous_turn, self.pre_tail, self.tail) if at is not None)


def choose_cache_points(items: Sequence[VisibleBlock], turn_at: int) -> CachePoints:
    """Choose the points. `turn_at` is the index of the newest turn's first item; only its last rounds are
    considered."""
    previous = next((at for at in range(turn_at - 1, -1, -1) if items[at].form in _STABLE), None)
    ends = _completed_ends(items, turn_at)
    if not ends:
        opening = (at for at in range(len(items) - 1, turn_at - 1, -1) if _is_candidate(items[at]))
        tail = next((at for at in opening if items[at].block.round == 0), None)
        return CachePoints(previous, None, tail)
    pre_tail = ends[-1] if len(ends) >= MIN_ROUNDS else None
    return CachePoints(previous, pre_tail, ends[0])


def first_editable_seq(items: Sequence[VisibleBlock], turn_at: int) -> int:
    """Blocks from this `seq` on may be hidden. Earlier blocks are cached: hiding them would cost more than it saves."""
    points = choose_cache_points(items, turn_at)
    if points.pre_tail is not None:
        return items[points.pre_tail].block.seq + 1
    return items[turn_at].block.seq if turn_at < len(items) else 1


def _completed_ends(items: Sequence[VisibleBlock], turn_at: int) -> list[int]:
    """The ends of the last completed rounds, newest first, at most PRE_TAIL_ROUNDS + 1."""
    ends: dict[int, int] = {}
    completed: list[int] = []
    for at in range(len(items) - 1, turn_at - 1, -1):
        block = items[at].block
        if block.round == 0 or not _is_candidate(items[at]):
            continue
        if block.round not in ends and len(completed) == PRE_TAIL_ROUNDS + 1:
            break
        ends.setdefault(block.round, at)
        if block.type in DECISION_TYPES and block.round not in completed:
            completed.append(block.round)
    return [ends[number] for number in completed]


def _is_candidate(item: VisibleBlock) -> bool:
    return item.form is Form.FULL and item.block.type is not BlockType.RANGE_SUMMARY


class PromptRenderer:
    """Renders one conversation for one model, each block once: each request repeats the previous one up to a break.

    Everything but the system text is one user message with one part for each block: the model reads its earlier work as
    a record, not as an example of how to write, and no provider's rule about alternating roles can shift a part.
    """

    def __init__(self, *, system_prompt: str, traits: ModelTraits) -> None:
        self.view = TimelineView()
        self._system = PromptMessage("system", (TextPart(system_prompt, cache_point=True),))
        self._traits = traits
        self._parts: list[Part] = []
        self._starts: list[int] = []
        """Where the parts of each item begin."""
        self._breaks_added = 0
        self._media = MediaBudget(traits)
        self._missing: dict[int, frozenset[str]] = {}
        """For each item, the images and PDFs, by sha256, that could not be loaded when it was rendered."""

    def take(self, blocks: Sequence[Block]) -> tuple[Break, ...]:
        """Add new blocks; returns the breaks that they declare."""
        self.view.extend(blocks)
        breaks = tuple(self.view.breaks[self._breaks_added :])
        self._breaks_added = len(self.view.breaks)
        if breaks:
            self._forget_from(min(each.index for each in breaks))
        return breaks

    def render(self, tail: Sequence[str], media: Mapping[str, bytes]) -> tuple[PromptMessage, ...]:
        """The request's messages. `tail` are the texts after the timeline, never cached; `media` holds the bytes of the
        newest turn's images and PDFs by sha256."""
        self.attach(media)
        parts = list(self._parts)
        for at in self.cache_points.indexes:
            part = parts[self._starts[at]]
            if isinstance(part, TextPart):
                parts[self._starts[at]] = TextPart(part.text, cache_point=True)
        parts.extend(TextPart(text) for text in tail if text)
        return (self._system, PromptMessage("user", tuple(parts)))

    def attach(self, media: Mapping[str, bytes]) -> None:
        """Render the new items since the last request, with their images and PDFs.

        If a file that could not be loaded before is available now, everything from its item on is rendered again: a new
        prompt prefix costs less than an answer about a picture that the model has not seen.
        """
        arrived = [at for at, missing in self._missing.items() if not missing.isdisjoint(media)]
        if arrived:
            self._forget_from(min(arrived))
        for at in range(len(self._starts), len(self.view.items)):
            self._append(at, media)

    @property
    def starts(self) -> tuple[int, ...]:
        """The index of each view item's first part in the user message, as of the last request."""
        return tuple(self._starts)

    @property
    def cache_points(self) -> CachePoints:
        """The cache points of the next request, in addition to the system text."""
        return choose_cache_points(self.view.items, self.view.turn_at)

    def tokens(self, ratio: CharsPerToken, tail: Sequence[str] = ()) -> int:
        """Estimated tokens of the request with this tail, and with the media attached so far."""
        chars = sum(len(part.text) for part in self._system.parts if isinstance(part, TextPart))
        chars += self.view.chars + sum(map(len, tail))
        return ratio.tokens_for(chars) + self._media.tokens

    def _append(self, at: int, media: Mapping[str, bytes]) -> None:
        item = self.view.items[at]
        self._starts.append(len(self._parts))
        attaches = at >= self.view.turn_at and item.form is Form.FULL
        wanted = [each.sha256 for each in block_media(item.block) if can_see(self._traits, each.mime)]
        missing = frozenset(sha256 for sha256 in wanted if attaches and sha256 not in media)
        if missing:
            self._missing[at] = missing
        self._parts.append(TextPart(item.text + (UNSEEN if missing else self._unseen(at))))
        if attaches:
            self._parts.extend(self._media.take(item.block, media))

    def _forget_from(self, index: int) -> None:
        self._missing = {at: missing for at, missing in self._missing.items() if at < index}
        if index < len(self._starts):
            del self._parts[self._starts[index] :]
            del self._starts[index:]
            self._media = MediaBudget(self._traits, [part for part in self._parts if isinstance(part, MediaPart)])

    def _unseen(self, at: int) -> str:
        item = self.view.items[at]
        shown = block_media(item.block) if item.form is Form.FULL else ()
        unseen = any(not can_see(self._traits, media.mime) for media in shown)
        return UNSEEN if unseen else ""

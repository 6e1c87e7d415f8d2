"""An answer that does not end its turn, because something was said before it could: the verdict on it. Pure."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from chat_proc.agent.drafting import RoundPlace
from chat_proc.agent.open_turn import TurnEnd
from everturn.model.block_bodies import CompletionBody, DeferralBody
from everturn.model.blocks import Block, BlockDraft, BlockType
from everturn.model.refs import round_ref
from everturn.timeline.turn_view import says_the_same

SIMILARITY = 0.9
"""From which share of common text on two answers say the same."""
MAX_CHARS_BY_LETTER = 200
"""Up to here answers are compared letter by letter, longer ones word by word: it costs the square of the length. The
worst texts of this size take about 10 ms."""
MAX_WORDS = 4_000
"""Of a longer answer, from its beginning. How often each word stands there is compared of all of them."""
MAX_ORDERED_WORDS = 200
"""Of these the order is compared as well."""
REASON = "external_events_arrived"
STOP_WITHDRAWN = "stop_withdrawn"


def draft_deferral(place: RoundPlace, count: int) -> BlockDraft:
    """Tells the model why its answer is not the last one; `count` messages came before it could be."""
    came = "A message" if count == 1 else f"{count} messages"
    body = DeferralBody(
        reason=REASON,
        text=f"{came} came before this answer ended the turn. The person has seen the answer, and the turn goes on: "
        "the next round shows what came. Do what it asks for, then complete with an answer that takes it in. "
        "If it changes nothing, complete with the same answer again.",
    )
    return place.draft(BlockType.DEFERRAL, round_ref(place.turn_id, place.round, "deferral"), body)


def try_draft_withdrawn_stop(place: RoundPlace, turn_blocks: Sequence[Block]) -> BlockDraft | None:
    """The verdict on an answer that a stop cut off in the round at `place`, when that stop did not hold.

    Read from the blocks: whoever goes on with the turn finds it, whichever worker saw the stop edited or taken back.
    """
    said = [block for block in turn_blocks if block.round == place.round]
    if not said or not isinstance(said[-1].body, CompletionBody):
        return None
    body = DeferralBody(
        reason=STOP_WITHDRAWN,
        text="This answer was cut off by a stop that was then withdrawn. The person has seen it as far as it "
        "goes, and the turn goes on: complete with the whole answer.",
    )
    return place.draft(BlockType.DEFERRAL, round_ref(place.turn_id, place.round, "deferral"), body)


def repeats_deferred(turn_blocks: Sequence[Block], end: TurnEnd) -> bool:
    """Whether this end gives the answer that was deferred last: asking once more would only give it again."""
    deferred, given = _deferred_answer(turn_blocks), _given_answer(end)
    return deferred is not None and given is not None and is_same_answer(deferred.text, given.text)


def shows_deferred_again(turn_blocks: Sequence[Block], end: TurnEnd) -> bool:
    """Whether clients that saw both answers must be told that they count as one."""
    deferred, given = _deferred_answer(turn_blocks), _given_answer(end)
    return deferred is not None and given is not None and says_the_same(_as_shown(deferred), _as_shown(given))


def is_same_answer(one: str, other: str) -> bool:
    """Equal but for blanks and case, or to `SIMILARITY` the same characters in the same order. Of longer answers the
    words are the same to this share, and the first of them in the same order."""
    if says_the_same(one, other):
        return True
    one, other = " ".join(one.split()).casefold(), " ".join(other.split()).casefold()
    if 2 * min(len(one), len(other)) < SIMILARITY * (len(one) + len(other)):
        return False
    if max(len(one), len(other)) <= MAX_CHARS_BY_LETTER:
        return _is_similar(SequenceMatcher(None, one, other, autojunk=False))
    words, others = one.split(None, MAX_WORDS)[:MAX_WORDS], other.split(None, MAX_WORDS)[:MAX_WORDS]
    if SequenceMatcher(None, words, others).quick_ratio() < SIMILARITY:
        return False
    return _is_similar(SequenceMatcher(None, words[:MAX_ORDERED_WORDS], others[:MAX_ORDERED_WORDS]))


def _is_similar(matcher: "SequenceMatcher[str]") -> bool:
    return matcher.quick_ratio() >= SIMILARITY and matcher.ratio() >= SIMILARITY


def _given_answer(end: TurnEnd) -> CompletionBody | None:
    return next((draft.body for draft in end.writing.drafts if isinstance(draft.body, CompletionBody)), None)


def _deferred_answer(turn_blocks: Sequence[Block]) -> CompletionBody | None:
    round_number = max((block.round for block in turn_blocks if block.type is BlockType.DEFERRAL), default=None)
    given = [block.body for block in turn_blocks if block.round == round_number]
    return next((body for body in reversed(given) if isinstance(body, CompletionBody)), None)


def _as_shown(body: CompletionBody) -> str:
    return body.text if body.shown is None else body.shown

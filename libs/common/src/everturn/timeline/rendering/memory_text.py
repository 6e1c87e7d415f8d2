"""How a summary reads in the timeline: what it covers, its text, and what it keeps, each with its ref."""

from collections.abc import Iterator, Sequence

from everturn.errors import Invalid
from everturn.model.block_bodies import KeptText, RangeSummaryBody
from everturn.model.blocks import BlockType
from everturn.model.refs import PromptRef, parse_ref, turn_index_ref
from everturn.timeline.inert import escape_line

_ASKED = "Asked in these turns, oldest first; a turn's index names everything in it:"
_ANCHORS = "Anchors:"
_CHAPTERS = "Earlier turns; each of these lists its turns:"
_SIGNS = {
    BlockType.USER_PROMPT.value: "asked",
    BlockType.USER_FOLLOWUP.value: "followup",
    BlockType.USER_STEER.value: "steer",
    BlockType.EXTERNAL_EVENT.value: "event",
}


def tell_memory(ref: str, body: RangeSummaryBody) -> str:
    """What is shown of a summary below its title, and what reading it by its ref gives."""
    covers = "the earlier rounds of this turn" if body.scope == "turn" else "the turns before"
    return "\n".join(
        (
            f"path={escape_line(ref)}; stands for {covers}",
            body.text,
            *_list(_CHAPTERS, [item for item in body.kept if item.kind == BlockType.RANGE_SUMMARY.value]),
            *_list(_ASKED if body.scope == "history" else "Said in this turn:", _asked(body)),
            *_list(_ANCHORS, [item for item in body.kept if item.kind == BlockType.ANCHOR.value]),
        )
    )


def _asked(body: RangeSummaryBody) -> list[KeptText]:
    return [item for item in body.kept if item.kind in _SIGNS]


def _list(title: str, items: Sequence[KeptText]) -> Iterator[str]:
    if items:
        yield title
        yield from (_line(item, short=title == _ASKED) for item in items)


def _line(item: KeptText, *, short: bool) -> str:
    """A turn is named by its index, from which its prompt can be read like everything else."""
    ref = _index_of(item.ref) if short else item.ref
    sign = f" {_SIGNS[item.kind]}" if item.kind in _SIGNS else ""
    return f"- {escape_line(ref)}{sign}: {item.text}".rstrip(": ")


def _index_of(ref: str) -> str:
    try:
        parsed = parse_ref(ref)
    except Invalid:
        return ref
    return turn_index_ref(parsed.turn) if isinstance(parsed, PromptRef) and parsed.conversation is None else ref

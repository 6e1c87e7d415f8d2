"""Hits of `react.memsearch`: where each stands, what it says in short, and how the whole is read again."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from everturn.errors import Invalid
from everturn.model import refs
from everturn.model.block_bodies import (
    AnchorBody,
    AttachmentBody,
    Body,
    CompletionBody,
    EventBody,
    PromptBody,
    SignalBody,
    SummaryBody,
)
from everturn.model.blocks import Block
from everturn.model.ids import ConversationId, TurnId
from everturn.model.memory.snippets import SnippetTarget
from everturn.ports.clock import iso
from everturn.ports.memory.search import CatalogTurn, FoundSnippet
from everturn.timeline.ref_owners import qualify_ref

MAX_HIT_CHARS = 500
MAX_HITS_CHARS = 10_000
"""Of all hits of one call together, so that a result is shown whole."""
MAX_HITS_OF_TURN = 8


@dataclass(frozen=True, slots=True)
class Hit:
    """One text that was found. `score` orders hits by fit; turns that are listed have none, but a place."""

    turn_id: TurnId
    ref: str
    role: str
    text: str
    ts: str
    turn_index_path: str
    score: float | None = None
    ordinal: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Without what it does not have."""
        fields: dict[str, Any] = {
            "turn_id": self.turn_id,
            "ref": self.ref,
            "role": self.role,
            "text": self.text,
            "score": self.score,
            "ordinal": self.ordinal,
            "ts": self.ts,
            "turn_index_path": self.turn_index_path,
        }
        return {name: value for name, value in fields.items() if value is not None}


def build_found_hit(found: FoundSnippet, here: ConversationId) -> Hit:
    """A snippet as it is seen from the conversation `here`."""
    owner = None if found.conversation_id == here else found.conversation_id
    return Hit(
        turn_id=found.turn_id,
        ref=tell_ref(found.ref, owner),
        role=found.target.value,
        text=_shorten(found.text),
        ts=iso(found.ts),
        turn_index_path=refs.turn_index_ref(found.turn_id, conversation=owner),
        score=round(found.score, 4),
    )


def build_turn_hits(turn: CatalogTurn, targets: frozenset[SnippetTarget], here: ConversationId) -> list[Hit]:
    """What of a turn was asked for; its prompt where it has nothing of that, so that no turn is passed over."""
    owner = None if turn.conversation_id == here else turn.conversation_id
    wanted = list(_pick(turn.blocks, targets)) or list(_pick(turn.blocks, frozenset({SnippetTarget.USER})))[:1]
    return [
        Hit(
            turn_id=turn.turn_id,
            ref=tell_ref(block.ref, owner),
            role=target.value,
            text=_shorten(text),
            ts=block.ts,
            turn_index_path=refs.turn_index_ref(turn.turn_id, conversation=owner),
            ordinal=turn.ordinal,
        )
        for target, block, text in wanted[:MAX_HITS_OF_TURN]
    ]


def tell_ref(ref: str, owner: ConversationId | None) -> str:
    """A stored ref as the model can follow it: one of another conversation names that conversation."""
    if owner is None:
        return ref
    try:
        return str(qualify_ref(refs.parse_ref(ref), owner))
    except Invalid:
        return ref


def render_hits(hits: Sequence[Hit]) -> tuple[str, int]:
    """One line of JSON for each hit, and how many found room."""
    lines: list[str] = []
    chars = 0
    for hit in hits:
        line = json.dumps(hit.as_json(), ensure_ascii=False)
        chars += len(line) + 1
        if lines and chars > MAX_HITS_CHARS:
            break
        lines.append(line)
    return "\n".join(lines), len(lines)


def _pick(blocks: Sequence[Block], targets: frozenset[SnippetTarget]) -> Iterator[tuple[SnippetTarget, Block, str]]:
    """The last summary and the last answer, and all else, in the order of the turn."""
    read = [(_read(block.body), block) for block in blocks]
    last = {said[0]: block for said, block in read if said is not None}
    for said, block in read:
        if said is None or said[0] not in targets or not said[1].strip():
            continue
        target, text = said
        if target in (SnippetTarget.SUMMARY, SnippetTarget.ASSISTANT) and last[target] is not block:
            continue
        yield target, block, text


def _read(body: Body) -> tuple[SnippetTarget, str] | None:
    match body:
        case PromptBody(text=text) | SignalBody(text=text) | EventBody(text=text):
            return SnippetTarget.USER, text
        case CompletionBody(text=text):
            return SnippetTarget.ASSISTANT, text
        case SummaryBody(text=text):
            return SnippetTarget.SUMMARY, text
        case AnchorBody(text=text):
            return SnippetTarget.NOTES, text
        case AttachmentBody(artifact=artifact):
            return SnippetTarget.ATTACHMENT, f"{artifact.filename} ({artifact.mime}, {artifact.size} bytes)"
        case _:
            return None


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_HIT_CHARS else text[:MAX_HIT_CHARS] + "..."

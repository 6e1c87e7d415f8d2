"""What a turn's blocks say about the questions it asked a person, and how long it waited for answers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from everturn.model.block_bodies import ApprovalOutcomeBody, ApprovalRequestBody
from everturn.model.blocks import Block
from everturn.model.ids import CallId


@dataclass(frozen=True, slots=True)
class Question:
    """A call that a person is asked about; `outcome` is None while it is open. Times are those of the blocks."""

    request: ApprovalRequestBody
    asked_at: str
    outcome: ApprovalOutcomeBody | None = None
    settled_at: str | None = None


def find_questions(turn_blocks: Sequence[Block]) -> Mapping[CallId, Question]:
    """The questions by the call that they are about, in the order in which they were asked."""
    found: dict[CallId, Question] = {}
    for block in turn_blocks:
        call_id = block.call_id or CallId("")
        match block.body:
            case ApprovalRequestBody() as request:
                found[call_id] = Question(request, block.ts)
            case ApprovalOutcomeBody() as outcome if call_id in found:
                found[call_id] = replace(found[call_id], outcome=outcome, settled_at=block.ts)
            case _:
                """Asks and answers nothing."""
    return found


def count_waited_s(turn_blocks: Sequence[Block]) -> float:
    """Seconds in which an answer was waited for; times in which two were count once."""
    waits = sorted(
        (datetime.fromisoformat(each.asked_at), datetime.fromisoformat(each.settled_at))
        for each in find_questions(turn_blocks).values()
        if each.settled_at is not None
    )
    total, until = 0.0, None
    for begin, end in waits:
        since = begin if until is None else max(begin, until)
        total += max(0.0, (end - since).total_seconds())
        until = end if until is None else max(end, until)
    return total

"""What the feedback endpoints do: keep judgements, and count them for their owner or for an admin of the project."""

from datetime import UTC, datetime
from typing import Literal, cast

from fastapi import Request

from everturn.model.feedback import Feedback, FeedbackTotals, JudgedConversation, Judgements, Period, Reaction
from everturn.model.identity import Principal, Role
from everturn.model.ids import ConversationId, TurnId, is_id
from everturn.ports.clock import Clock
from everturn.ports.feedback import FeedbackBook, JudgedPosition
from everturn.wire.cursors import BadCursor, build_cursor, read_cursor, read_moment
from everturn.wire.times import iso
from ingress.errors import forbidden
from ingress.feedback.schemas import (
    CountsOut,
    FeedbackIn,
    JudgedOut,
    PeriodIn,
    PeriodOut,
    Scope,
    SummaryOut,
    TotalsOut,
)

MACHINES = frozenset({Role.PRIVILEGED, Role.ADMIN})
"""Roles that may judge as a machine: its judgements count in reports that people trust."""
_CURSOR = "judged"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(8999, 1, 1, tzinfo=UTC)


class FeedbackService:
    """Judgements are about the caller's own turns; a report of the whole project is for admins."""

    def __init__(self, book: FeedbackBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock

    async def save(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId, body: FeedbackIn
    ) -> Feedback:
        """Save one judgement, as of now unless it says an earlier time."""
        if body.origin == "machine" and not principal.roles & MACHINES:
            raise forbidden("Feedback with origin machine requires the role privileged or admin.")
        given = Feedback(
            turn_id=turn_id,
            origin=body.origin,
            reaction=Reaction(body.reaction) if body.reaction else None,
            text=body.text,
            ts=body.moment(self._clock.now()),
            confidence=body.confidence,
        )
        return await self._book.save(principal, conversation_id, given)

    async def report(self, principal: Principal, wanted: PeriodIn) -> PeriodOut:
        """One page of the judged conversations of a period. Raises BadCursor."""
        scope = _check_scope(principal, wanted.scope)
        found = await self._book.load_judged(
            principal,
            Period(wanted.since, wanted.until),
            project=scope == "project",
            limit=wanted.limit + 1,
            after=None if wanted.cursor is None else _read_position(wanted.cursor),
        )
        page = found[: wanted.limit]
        return PeriodOut(
            scope=scope,
            items=tuple(map(_build_judged, page)),
            next_cursor=_build_cursor(page[-1]) if len(found) > wanted.limit else None,
        )

    async def summarize(
        self, principal: Principal, *, since: datetime | None, until: datetime | None, scope: Scope | None
    ) -> SummaryOut:
        """What all judgements of a period come to; of all times where it is open."""
        of = _check_scope(principal, scope)
        totals = await self._book.load_totals(
            principal, Period(since or _FIRST, until or _LAST), project=of == "project"
        )
        return SummaryOut(
            scope=of,
            satisfaction=totals.user.satisfaction,
            conversations=totals.conversations,
            turns=totals.turns,
            **_build_totals(totals).model_dump(),
        )


def feedback_service(request: Request) -> FeedbackService:
    """The service of this application."""
    return cast(FeedbackService, request.app.state.feedback)


def _check_scope(principal: Principal, asked: Scope | None) -> Literal["own", "project"]:
    """An admin sees the project unless it asks otherwise; raises 403 for others who ask for it."""
    if Role.ADMIN in principal.roles:
        return asked or "project"
    if asked == "project":
        raise forbidden("Reports of the whole project require the role admin.")
    return "own"


def _build_cursor(last: JudgedConversation) -> str:
    return build_cursor(_CURSOR, last.last_judged_at.isoformat(), last.conversation_id)


def _read_position(cursor: str) -> JudgedPosition:
    moment, conversation_id = read_cursor(cursor, _CURSOR, parts=2)
    if not is_id(conversation_id, "conv"):
        raise BadCursor()
    return JudgedPosition(read_moment(moment), ConversationId(conversation_id))


def _build_judged(judged: JudgedConversation) -> JudgedOut:
    totals = judged.totals
    return JudgedOut(
        conversation_id=judged.conversation_id,
        user_id=judged.user_id,
        title=judged.title,
        last_judged_at=iso(judged.last_judged_at),
        turns=totals.turns,
        satisfaction=totals.user.satisfaction,
        **_build_totals(totals).model_dump(),
    )


def _build_totals(totals: FeedbackTotals) -> TotalsOut:
    return TotalsOut(
        user=_build_counts(totals.user),
        machine=_build_counts(totals.machine),
        machine_confidence=totals.machine_confidence,
    )


def _build_counts(counts: Judgements) -> CountsOut:
    return CountsOut(ok=counts.ok, not_ok=counts.not_ok, neutral=counts.neutral, unrated=counts.unrated)

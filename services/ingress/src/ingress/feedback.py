"""Feedback on turns, and reports of it."""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self, cast

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field, model_validator

from everturn.core.api_model import ApiModel
from everturn.core.clock import Clock, iso
from everturn.core.identity import Principal, Role
from everturn.core.ids import ConversationId, TurnId, is_id
from everturn.core.paging import BadCursor, build_cursor, read_cursor, read_moment
from everturn.events.turn_view import build_feedback_view
from everturn.events.views import FeedbackView
from everturn.feedback.model import (
    ConversationFeedback,
    Feedback,
    FeedbackPosition,
    FeedbackStore,
    FeedbackTotals,
    Judgements,
    Period,
    Reaction,
)
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.errors import forbidden, unprocessable
from ingress.fields import ConversationPath, Cursor, JsonBody, Moment, TurnPath
from ingress.openapi.responses import problems

Scope = Literal["own", "project"]

MACHINES = frozenset({Role.PRIVILEGED, Role.ADMIN})
"""Roles that can judge as a machine: such judgements count in reports that people trust."""
_CURSOR = "judged"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(8999, 1, 1, tzinfo=UTC)

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=AdmittedRoute, tags=["feedback"])


class FeedbackIn(JsonBody):
    """Feedback on a turn. A user's replaces the previous one; null without a text removes it. A machine's is added."""

    reaction: Literal["ok", "not_ok", "neutral"] | None = Field(examples=["ok"])
    """The rating."""
    text: str = Field(default="", max_length=10_000, examples=["Just what I needed."])
    """What is written with the rating."""
    ts: Moment | None = Field(default=None, strict=False, description="When it was given; defaults to now.")
    origin: Literal["user", "machine"] = "user"
    """Whether the feedback came from a person or a machine."""
    confidence: float | None = Field(
        default=None, ge=0, le=1, description="How sure the machine is, from 0 to 1; only with origin `machine`."
    )

    @model_validator(mode="after")
    def check_origin(self) -> Self:
        """Only a machine is unsure, and it has to judge."""
        if self.origin == "user" and self.confidence is not None:
            raise ValueError("confidence is only allowed with origin 'machine'")
        if self.origin == "machine" and self.reaction is None:
            raise ValueError("feedback with origin 'machine' needs a reaction")
        return self

    def moment(self, now: datetime) -> datetime:
        """When the feedback was given; a time in the future counts as now."""
        return min(self.ts, now) if self.ts else now


class FeedbackOut(ApiModel):
    """The current feedback."""

    turn_id: str
    feedback: FeedbackView
    """The feedback as it is stored now."""
    cleared: bool
    """Whether the feedback was removed."""


class PeriodIn(JsonBody):
    """A period: `from` is included, `to` is not. `scope` is `own`, or for admins `project`, their default."""

    since: Moment = Field(alias="from", strict=False, examples=["2026-03-01T00:00:00Z"])
    """The beginning of the period, inclusive, in ISO 8601 with a time zone."""
    until: Moment = Field(alias="to", strict=False, examples=["2026-04-01T00:00:00Z"])
    """The end of the period, exclusive, in ISO 8601 with a time zone."""
    cursor: Cursor | None = Field(default=None, description="The `next_cursor` of the previous page.")
    limit: int = Field(default=50, ge=1, le=100, description="Maximum number of rows on a page.")
    scope: Scope | None = None
    """Whose conversations are counted."""

    @model_validator(mode="after")
    def check_period(self) -> Self:
        """It has a beginning before its end."""
        if self.since >= self.until:
            raise ValueError("from must be before to")
        return self


class CountsOut(ApiModel):
    """The number of feedback entries by reaction."""

    ok: int = Field(examples=[3])
    """How many have the reaction `ok`."""
    not_ok: int = Field(examples=[1])
    """How many have the reaction `not_ok`."""
    neutral: int = Field(examples=[0])
    """How many have the reaction `neutral`."""
    unrated: int = Field(examples=[0])
    """How many have a text but no reaction."""


class TotalsOut(ApiModel):
    """Feedback from people and, counted separately, feedback from machines with its mean confidence."""

    user: CountsOut
    """Feedback from people."""
    machine: CountsOut
    """Feedback from machines."""
    machine_confidence: float | None
    """The mean confidence of machine feedback, from 0 to 1."""


class ConversationFeedbackOut(TotalsOut):
    """A conversation that got feedback in the period. `title` is null in a report of the whole project."""

    conversation_id: str
    user_id: str
    """The user's id."""
    title: str | None
    """The title of the conversation; null in a report of the whole project."""
    last_judged_at: str
    """When feedback was last given, in ISO 8601 and UTC."""
    turns: int
    """How many turns were counted."""
    satisfaction: float | None
    """The share of good ratings among all ratings by people; absent without any."""


class PeriodOut(ApiModel):
    """One page, the latest feedback first; `next_cursor` leads to the next page and is null at the end."""

    scope: Scope
    """Whose conversations are counted."""
    items: tuple[ConversationFeedbackOut, ...]
    next_cursor: str | None


class SummaryOut(TotalsOut):
    """`satisfaction` is ok / (ok + not_ok + neutral) of people's feedback; null without any."""

    scope: Scope
    """Whose conversations are counted."""
    satisfaction: float | None
    """The share of good ratings among all ratings by people; absent without any."""
    conversations: int
    """How many conversations were counted."""
    turns: int
    """How many turns were counted."""


class FeedbackService:
    """Stores judgements of the caller's own turns; a report of the whole project is for admins."""

    def __init__(self, book: FeedbackStore, clock: Clock) -> None:
        self._book = book
        self._clock = clock

    async def save(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId, body: FeedbackIn
    ) -> Feedback:
        """Save one judgement, with the current time unless it names an earlier one."""
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
        """One page of the conversations with feedback in a period. Raises BadCursor."""
        scope = _check_scope(principal, wanted.scope)
        found = await self._book.load_conversations(
            principal,
            Period(wanted.since, wanted.until),
            project=scope == "project",
            limit=wanted.limit + 1,
            after=None if wanted.cursor is None else _read_position(wanted.cursor),
        )
        page = found[: wanted.limit]
        return PeriodOut(
            scope=scope,
            items=tuple(map(_build_conversation, page)),
            next_cursor=_build_cursor(page[-1]) if len(found) > wanted.limit else None,
        )

    async def summarize(
        self, principal: Principal, *, since: datetime | None, until: datetime | None, scope: Scope | None
    ) -> SummaryOut:
        """The totals of all judgements of a period, which can be open at either end."""
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


async def feedback_service(request: Request) -> FeedbackService:
    """The service of this application."""
    return cast(FeedbackService, request.app.state.feedback)


def _check_scope(principal: Principal, requested: Scope | None) -> Literal["own", "project"]:
    """The scope of a report: for an admin the project by default; raises 403 if others request it."""
    if Role.ADMIN in principal.roles:
        return requested or "project"
    if requested == "project":
        raise forbidden("Reports of the whole project require the role admin.")
    return "own"


def _build_cursor(last: ConversationFeedback) -> str:
    return build_cursor(_CURSOR, last.last_feedback_at.isoformat(), last.conversation_id)


def _read_position(cursor: str) -> FeedbackPosition:
    moment, conversation_id = read_cursor(cursor, _CURSOR, parts=2)
    if not is_id(conversation_id, "conv"):
        raise BadCursor()
    return FeedbackPosition(read_moment(moment), ConversationId(conversation_id))


def _build_conversation(found: ConversationFeedback) -> ConversationFeedbackOut:
    totals = found.totals
    return ConversationFeedbackOut(
        conversation_id=found.conversation_id,
        user_id=found.user_id,
        title=found.title,
        last_judged_at=iso(found.last_feedback_at),
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


Service = Annotated[FeedbackService, Depends(feedback_service)]


@router.post(
    "/{conversation_id}/turns/{turn_id}/feedback",
    responses=problems(408, 409, 413, 415),
    response_model_exclude_none=True,
)
async def post_feedback(
    body: FeedbackIn, me: Me, service: Service, conversation_id: ConversationPath, turn_id: TurnPath
) -> FeedbackOut:
    """Give feedback on a turn, or remove it. Origin `machine` requires the role privileged or admin."""
    saved = await service.save(me, conversation_id, turn_id, body)
    cleared = saved.reaction is None and not saved.text
    return FeedbackOut(turn_id=turn_id, feedback=build_feedback_view(saved), cleared=cleared)


@router.post("/feedback/conversations-in-period", responses=problems(408, 413, 415))
async def report_feedback(body: PeriodIn, me: Me, service: Service) -> PeriodOut:
    """Conversations that got feedback in a period, latest feedback first."""
    return await service.report(me, body)


@router.get("/feedback/summary", responses=problems())
async def summarize_feedback(
    *,
    me: Me,
    service: Service,
    since: Annotated[Moment | None, Query(alias="from", description="Beginning of the period, included.")] = None,
    until: Annotated[Moment | None, Query(alias="to", description="End of the period, not included.")] = None,
    scope: Annotated[Scope | None, Query(description="For admins: `own`, or `project` (the default).")] = None,
) -> SummaryOut:
    """Satisfaction and counts: for the caller's own turns, or for an admin those of the whole project."""
    if since and until and since >= until:
        raise unprocessable("query.from must be before query.to.")
    return await service.summarize(me, since=since, until=until, scope=scope)

"""Feedback on turns, and what it comes to."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from everturn.timeline.view_parts import build_feedback_view
from ingress.admission.moments import Moment
from ingress.admission.paths import ConversationPath, TurnPath
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.errors import unprocessable
from ingress.feedback.schemas import FeedbackIn, FeedbackOut, PeriodIn, PeriodOut, Scope, SummaryOut
from ingress.feedback.service import FeedbackService, feedback_service

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=AdmittedRoute, tags=["feedback"])
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

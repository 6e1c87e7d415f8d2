"""Feedback on a turn."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request

from everturn.model.feedback import Feedback, Reaction
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.ports.clock import Clock
from everturn.ports.feedback import FeedbackBook
from everturn.timeline.view_parts import build_feedback_view
from ingress.admission.paths import ConversationPath, TurnPath
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.feedback.schemas import FeedbackIn, FeedbackOut

router = APIRouter(
    prefix="/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}/feedback",
    route_class=AdmittedRoute,
    tags=["feedback"],
)


class FeedbackService:
    """Keeps judgements."""

    def __init__(self, book: FeedbackBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock

    async def save(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId, body: FeedbackIn
    ) -> Feedback:
        """Save one judgement, as of now unless it says an earlier time."""
        given = Feedback(
            turn_id=turn_id,
            origin=body.origin,
            reaction=Reaction(body.reaction) if body.reaction else None,
            text=body.text,
            ts=body.moment(self._clock.now()),
            confidence=body.confidence,
        )
        return await self._book.save(principal, conversation_id, given)


def feedback_service(request: Request) -> FeedbackService:
    """The service of this application."""
    return cast(FeedbackService, request.app.state.feedback)


@router.post("", responses=problems(408, 413, 415), response_model_exclude_none=True)
async def post_feedback(
    body: FeedbackIn,
    me: Me,
    service: Annotated[FeedbackService, Depends(feedback_service)],
    conversation_id: ConversationPath,
    turn_id: TurnPath,
) -> FeedbackOut:
    """Judge a turn, or take the judgement back."""
    saved = await service.save(me, conversation_id, turn_id, body)
    cleared = saved.reaction is None and not saved.text
    return FeedbackOut(turn_id=turn_id, feedback=build_feedback_view(saved), cleared=cleared)

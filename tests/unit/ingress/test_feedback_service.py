"""Who may rate as a machine, and whose ratings a report counts."""

import pytest

from everturn.core.identity import Principal, Role
from everturn.core.ids import ConversationId, TurnId
from everturn.feedback.model import ConversationFeedback, Feedback, FeedbackPosition, FeedbackTotals, Judgements, Period
from everturn_testing.core import FixedClock
from ingress.errors import ProblemError
from ingress.feedback import FeedbackIn, FeedbackService


class Book:
    def __init__(self) -> None:
        self.project: list[bool] = []

    async def save(self, principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Feedback:
        return feedback

    async def load_totals(self, principal: Principal, period: Period, *, project: bool) -> FeedbackTotals:
        self.project.append(project)
        return FeedbackTotals(1, 2, Judgements(ok=1, not_ok=3), Judgements(), None)

    async def load_conversations(
        self, principal: Principal, period: Period, *, project: bool, limit: int, after: FeedbackPosition | None
    ) -> tuple[ConversationFeedback, ...]:
        raise AssertionError("nobody asked for conversations")


def who(*roles: Role) -> Principal:
    return Principal("acme", "support", "ann", frozenset(roles))


MACHINE = FeedbackIn(reaction="ok", origin="machine", confidence=0.5)


@pytest.mark.parametrize("role", [Role.PRIVILEGED, Role.ADMIN])
async def test_a_machine_with_the_right_can_rate(role: Role) -> None:
    saved = await FeedbackService(Book(), FixedClock()).save(
        who(Role.REGISTERED, role), ConversationId("c"), TurnId("t"), MACHINE
    )

    assert (saved.origin, saved.confidence) == ("machine", 0.5)


async def test_everybody_else_is_refused() -> None:
    with pytest.raises(ProblemError) as refused:
        await FeedbackService(Book(), FixedClock()).save(
            who(Role.REGISTERED, Role.PAID), ConversationId("c"), TurnId("t"), MACHINE
        )

    assert refused.value.answer.status == 403


async def test_an_admin_gets_the_project_unless_it_requests_its_own() -> None:
    book = Book()
    service = FeedbackService(book, FixedClock())

    of_project = await service.summarize(who(Role.ADMIN), since=None, until=None, scope=None)
    await service.summarize(who(Role.ADMIN), since=None, until=None, scope="own")
    of_person = await service.summarize(who(Role.PAID), since=None, until=None, scope=None)

    assert book.project == [True, False, False]
    assert (of_project.scope, of_person.scope, of_project.satisfaction) == ("project", "own", 0.25)

"""A ticket opens one conversation's stream, for one caller, for five minutes."""

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn_testing.core import FixedClock
from ingress.auth.callers import Caller, Proof
from ingress.auth.signed_tokens import TICKET_S, Tickets, TokenSigner
from ingress.errors import ProblemError

SEALS = TokenSigner(b"0123456789abcdef0123456789abcdef")
ANN = Caller(Principal("t", "p", "ann"), None, Proof("key", 1.0, "0123456789abcdef"))
MINE = ConversationId("conv_1")


def check(tickets: Tickets, text: str, tenant: str = "t", project: str = "p", conversation: str = "conv_1") -> Caller:
    return tickets.check(text, tenant=tenant, project=project, conversation_id=conversation)


def test_a_ticket_can_be_used_repeatedly_for_its_caller() -> None:
    tickets = Tickets(SEALS, FixedClock())

    ticket = tickets.build(ANN, MINE)

    assert [check(tickets, ticket.text) for _ in range(3)] == [ANN] * 3


def test_a_ticket_expires_after_five_minutes() -> None:
    clock = FixedClock()
    tickets = Tickets(SEALS, clock)
    ticket = tickets.build(ANN, MINE)

    clock.advance(TICKET_S - 1)
    assert check(tickets, ticket.text) == ANN
    clock.advance(1)

    with pytest.raises(ProblemError) as refused:
        check(tickets, ticket.text)
    assert refused.value.status_code == 401


def test_a_ticket_lives_no_longer_than_its_callers_credential() -> None:
    clock = FixedClock()
    soon = clock.now().timestamp() + 10

    ticket = Tickets(SEALS, clock).build(Caller(ANN.principal, soon, Proof("token")), MINE)

    assert ticket.expires_at == soon


@pytest.mark.parametrize("place", [{"conversation": "conv_2"}, {"tenant": "other"}, {"project": "other"}])
def test_a_ticket_for_another_stream_is_401(place: dict[str, str]) -> None:
    tickets = Tickets(SEALS, FixedClock())

    with pytest.raises(ProblemError) as refused:
        check(tickets, tickets.build(ANN, MINE).text, **place)

    assert refused.value.status_code == 401


def test_a_changed_ticket_and_one_of_another_server_are_401() -> None:
    tickets = Tickets(SEALS, FixedClock())
    foreign = Tickets(TokenSigner(b"another secret of enough bytes..."), FixedClock()).build(ANN, MINE).text

    for text in (foreign, tickets.build(ANN, MINE).text[:-3], "", "evt_", "evk_0"):
        with pytest.raises(ProblemError) as refused:
            check(tickets, text)
        assert refused.value.status_code == 401

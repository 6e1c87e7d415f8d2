"""Waits are reported once, by the database's times, and cost only if it is known."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from chat_proc.turn.meter import TurnMeter, add_usage, count_usage
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import ORIGIN
from everturn.events.model import ChatDelta, ConvStatus
from everturn.timeline.turns import Outcome, Turn, TurnRequest, TurnStatus, TurnUsage
from everturn.turns.model import Claim, Lease, UsageEvent
from everturn_testing.core import FixedClock

ACCEPTED = datetime(2026, 3, 1, 12, tzinfo=UTC)
CLAIM = Claim(
    lease=Lease(ConversationId("conv_1"), Principal("acme", "support", "ann"), "worker", 1),
    turn_id=TurnId("turn_1"),
    attempt=0,
    next_seq=1,
    last_hash="",
    cursor=ORIGIN,
    inbox_seq=0,
)
TURN = Turn(
    id=TurnId("turn_1"),
    conversation_id=ConversationId("conv_1"),
    ordinal=1,
    status=TurnStatus.RUNNING,
    attempt=0,
    request=TurnRequest("Hello."),
    created_at=ACCEPTED,
    started_at=ACCEPTED + timedelta(seconds=4),
    read_at=ACCEPTED + timedelta(seconds=5),
)
USAGE = UsageEvent("priced", "decision", 100, 20, 60, 30, 0.25, False)


class Figures:
    """What a metric has gained since this was made."""

    def __init__(self, *names: tuple[str, dict[str, str]]) -> None:
        self._names = names
        self._before = self._read()

    def _read(self) -> list[float]:
        return [REGISTRY.get_sample_value(name, labels) or 0.0 for name, labels in self._names]

    def gained(self) -> list[float]:
        return [round(now - before, 6) for now, before in zip(self._read(), self._before, strict=True)]


def say(channel: str) -> ChatDelta:
    return ChatDelta(channel=channel, instance=0, index=0, text="x", completed=False, marker=channel, format="text")


@pytest.fixture
def waits() -> Figures:
    return Figures(
        ("everturn_turn_queue_seconds_sum", {"lane": "registered"}),
        ("everturn_turn_first_token_seconds_sum", {}),
        ("everturn_turn_first_token_seconds_count", {}),
        ("everturn_turn_first_answer_seconds_sum", {}),
        ("everturn_turn_first_answer_seconds_count", {}),
    )


def test_waits_count_from_the_commit_that_accepted_the_turn_and_once(waits: Figures) -> None:
    clock = FixedClock()
    meter = TurnMeter(CLAIM, TURN, clock, is_new=True)

    meter.note_event(ConvStatus(state="running", turn_id=TURN.id))
    clock.advance(2)
    meter.note_event(say("thinking"))
    clock.advance(3)
    meter.note_event(say("answer"))
    meter.note_event(say("answer"))

    assert waits.gained() == [4, 7, 1, 10, 1]


def test_an_answer_without_thinking_is_the_first_token_too(waits: Figures) -> None:
    meter = TurnMeter(CLAIM, TURN, FixedClock(), is_new=True)

    meter.note_event(say("answer"))

    assert waits.gained() == [4, 5, 1, 5, 1]


def test_a_successor_does_not_report_waits_again(waits: Figures) -> None:
    meter = TurnMeter(replace(CLAIM, attempt=1), TURN, FixedClock(), is_new=False)

    meter.note_event(say("thinking"))
    meter.note_event(say("answer"))

    assert waits.gained() == [0, 0, 0, 0, 0]


def test_an_end_is_counted_without_the_wait_for_a_person() -> None:
    ended = Figures(
        ("everturn_turns_ended_total", {"outcome": "capped"}),
        ("everturn_turns_ended_total", {"outcome": "failed"}),
        ("everturn_turn_seconds_sum", {"outcome": "capped"}),
        ("everturn_turn_seconds_sum", {"outcome": "failed"}),
    )
    clock = FixedClock()
    meter = TurnMeter(CLAIM, TURN, clock, is_new=True)

    clock.advance(10)
    meter.note_end(Outcome.CAPPED, waited_s=3)
    meter.note_end(None, waited_s=0)

    assert ended.gained() == [1, 1, 12, 15]


def test_calls_without_a_known_price_are_counted() -> None:
    used = Figures(
        ("everturn_tokens_total", {"model": "priced", "kind": "input"}),
        ("everturn_cached_tokens_total", {"model": "priced", "kind": "read"}),
        ("everturn_cached_tokens_total", {"model": "priced", "kind": "written"}),
        ("everturn_cost_usd_total", {"model": "priced"}),
        ("everturn_unpriced_model_calls_total", {"model": "nobodys"}),
    )

    count_usage([USAGE, replace(USAGE, model="nobodys", cost_usd=0.0, cost_known=False)])

    assert used.gained() == [100, 60, 30, 0.25, 1]
    assert REGISTRY.get_sample_value("everturn_cost_usd_total", {"model": "nobodys"}) is None


def test_usage_adds_up() -> None:
    assert add_usage(TurnUsage(input_tokens=1), [USAGE, USAGE]).input_tokens == 201

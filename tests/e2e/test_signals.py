"""Followup, steer and cancel into running, queued and finishing turns, with real processes."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.whole_turns import is_encoder

from everturn_client import Event
from everturn_client.errors import ProblemError

CANCELLED_S, PROCESSES_GONE_S = 1.0, 2.0
"""What is promised after a cancel; deadlines in tests get three times that."""

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


def children(parents: list[int | None]) -> list[int]:
    """The processes that these ones have started: supervisors of programs."""
    found = (Path(f"/proc/{parent}/task/{parent}/children") for parent in parents)
    pids = [int(pid) for listing in found for pid in listing.read_text().split()]
    return [pid for pid in pids if not is_encoder(pid)]


async def start(harness: Any, text: str) -> tuple[Any, Any]:
    sent = await harness.clients[0].send_message("new", text)
    return sent, harness.watch(sent.conversation_id)


def is_too_late(answer: object) -> bool:
    """Whether a signal was refused because its turn had ended; nothing else may refuse one."""
    if not isinstance(answer, BaseException):
        return False
    assert isinstance(answer, ProblemError)
    assert answer.problem.status == 409, answer
    return True


async def test_a_followup_is_answered_in_the_same_turn(harness: Any) -> None:
    sent, watcher = await start(harness, "script:slow please")
    await watcher.wait_text(sent.turn_id, "thinking")

    followup = await harness.clients[1].send_message(sent.conversation_id, "And one thing more.")
    turn = await watcher.wait_ended(sent.turn_id)

    assert followup.turn_id == sent.turn_id
    assert [text.text for text in turn.texts if text.channel == "answer"][-1] == "The second answer."
    assert turn.answer == "The second answer."
    assert [(signal.kind, signal.state) for signal in turn.signals] == [("followup", "applied")]
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()


async def test_a_steer_cuts_the_running_answer_and_redirects(harness: Any) -> None:
    sent, watcher = await start(harness, "script:endless please")
    await watcher.wait_text(sent.turn_id, "answer")

    await harness.clients[1].send_signal(sent.conversation_id, "steer", "Be brief.")
    turn = await watcher.wait_ended(sent.turn_id)

    assert turn.answer == "The second answer."
    assert "One two three four".startswith(turn.texts[1].text[:18])
    assert [(signal.kind, signal.state) for signal in turn.signals] == [("steer", "applied")]
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()


async def test_a_blank_steer_stops_with_what_there_is(harness: Any) -> None:
    sent, watcher = await start(harness, "script:endless please")
    await watcher.wait_text(sent.turn_id, "answer")

    await harness.clients[0].send_signal(sent.conversation_id, "steer", "")
    turn = await watcher.wait_ended(sent.turn_id)

    assert turn.outcome == "stopped"
    assert turn.answer and "One two three four".startswith(turn.answer[:18])
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()


async def test_cancels_end_a_streaming_turn_once_however_often_they_come(harness: Any) -> None:
    sent, watcher = await start(harness, "script:endless please")
    await watcher.wait_text(sent.turn_id, "thinking")

    begun = time.monotonic()
    cancels = [harness.clients[n % 2].send_signal(sent.conversation_id, "cancel") for n in range(4)]
    answers = await asyncio.gather(*cancels, return_exceptions=True)
    turn = await watcher.wait_ended(sent.turn_id)

    assert time.monotonic() - begun < 3 * CANCELLED_S
    assert not all(map(is_too_late, answers))
    assert (turn.status, turn.outcome) == ("cancelled", "cancelled")
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()


async def test_a_cancel_ends_a_running_program(harness: Any) -> None:
    sent, watcher = await start(harness, "script:sleep please")
    await watcher.wait_until(lambda w: bool((turn := w.turn(sent.turn_id)) and turn.steps))

    workers = [harness.platform.pid(name) for name in ("worker-1", "worker-2")]
    async with asyncio.timeout(10):
        while not children(workers):  # noqa: ASYNC110 - there is no event for another process's children
            await asyncio.sleep(0.05)
    begun = time.monotonic()
    await harness.clients[0].send_signal(sent.conversation_id, "cancel")
    turn = await watcher.wait_ended(sent.turn_id)
    ended_s = time.monotonic() - begun
    async with asyncio.timeout(3 * PROCESSES_GONE_S):
        while children(workers):  # noqa: ASYNC110 - there is no event for another process's children
            await asyncio.sleep(0.05)

    assert turn.outcome == "cancelled"
    assert turn.steps[0].status == "error"
    assert ended_s < 3 * PROCESSES_GONE_S
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()


async def test_signals_against_a_finishing_turn_end_it_or_become_the_next_turn(harness: Any) -> None:
    """The signal is sent at once, so that it meets the turn at any moment of its short life."""
    for kind in ("followup", "steer", "cancel") * 3:
        sent, watcher = await start(harness, "script:plain please")
        outcome = await asyncio.gather(
            harness.clients[1].send_signal(
                sent.conversation_id, kind, "" if kind == "cancel" else "script:plain again"
            ),
            return_exceptions=True,
        )

        turn = await watcher.wait_ended(sent.turn_id)
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
        state = await harness.check_invariants(sent.conversation_id, watcher)

        assert turn.status in ("completed", "cancelled")
        states = {signal.state for row in state.turns for signal in row.signals}
        assert states <= {"applied", "promoted", "expired"}
        assert len(states) == (0 if is_too_late(outcome[0]) else 1)
        await harness.close()


async def test_an_event_with_a_file_is_answered_in_the_running_turn(harness: Any, tmp_path: Path) -> None:
    sent, watcher = await start(harness, "script:slow please")
    await watcher.wait_text(sent.turn_id, "thinking")
    (tmp_path / "form.csv").write_bytes(b"city\nOslo\n")

    accepted = await harness.clients[1].send_event(
        sent.conversation_id, Event("form", {"city": "Oslo"}), "The form was sent.", files=[tmp_path / "form.csv"]
    )
    turn = await watcher.wait_ended(sent.turn_id)

    assert (accepted.turn_id, accepted.receipt.state) == (sent.turn_id, "accepted")
    assert turn.answer == "The second answer."
    (signal,) = turn.signals
    assert signal.event is not None
    assert (signal.kind, signal.event.kind, signal.state) == ("event", "form", "applied")
    assert signal.attachments[0].ref.endswith(f".external.form.attachments/{accepted.signal_id}/form.csv")
    saved = await harness.clients[0].download(signal.attachments[0].artifact_id, tmp_path / "saved.csv")
    assert saved.read_bytes() == b"city\nOslo\n"
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()


async def test_an_idle_conversation_keeps_records_and_reacts_to_events(harness: Any) -> None:
    sent, watcher = await start(harness, "script:plain please")
    await watcher.wait_ended(sent.turn_id)
    await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    client = harness.clients[1]

    noted = await client.send_event(sent.conversation_id, Event("alert", reactive=False), "Noted.")
    woken = await client.send_event(sent.conversation_id, Event("form", {"n": 1}), "The form was sent.")
    turn = await watcher.wait_ended(woken.turn_id)

    assert (noted.turn_id, noted.receipt.state, woken.receipt.state) == (None, "queued", "queued")
    assert turn.answer == "A plain answer."
    assert [signal.text for signal in turn.signals] == ["Noted.", "The form was sent."]
    receipt = await client.signals.get(sent.conversation_id, noted.signal_id)
    assert (receipt.signal.state, receipt.signal.promoted_to) == ("promoted", woken.turn_id)
    await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()

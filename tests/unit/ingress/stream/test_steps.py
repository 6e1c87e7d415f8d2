"""The view for simple clients: what each event becomes, and that ids stay."""

import json
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from everturn.conversations.model import ConversationState
from everturn.core.errors import problem
from everturn.core.threads import ON_LOOP_SIZE
from everturn.events.model import (
    AnyEvent,
    ChatApproval,
    ChatCompaction,
    ChatComplete,
    ChatDelta,
    ChatError,
    ChatFollowups,
    ChatPhase,
    ChatRewind,
    ChatSignal,
    ChatStart,
    ChatStep,
    ConvStatus,
    Envelope,
    ServerShutdown,
    StreamSnapshot,
    encode_envelope,
    parse_envelope,
)
from everturn.events.turn_view import build_state
from everturn.events.views import ApprovalView, SignalView, StepRoundView, StepView, TextView, TurnView
from everturn.timeline.turns import TurnUsage
from everturn_testing.events.scenarios import PROJECT, TENANT
from everturn_testing.turns.approval_scenarios import ApprovalScenario
from ingress.stream.frames import HEARTBEAT, encode_frame
from ingress.stream.steps import StepsProjector, project_steps


def frame(data: AnyEvent, cursor: str | None = "1-1", *, retry_ms: int | None = None) -> bytes:
    envelope = Envelope(
        id=cursor, type=data.type, ts="2026-03-01T12:00:00.000Z", conversation_id="c", turn_id="t", round=2, data=data
    )
    return encode_frame(data.type, encode_envelope(envelope), cursor=cursor, retry_ms=retry_ms)


def read(raw: bytes) -> list[tuple[str | None, str | None, Any]]:
    """Id, event and data of each frame."""
    found: list[tuple[str | None, str | None, Any]] = []
    for each in raw.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in each.split("\n"))
        found.append((fields.get("id"), fields.get("event"), json.loads(fields.get("data", "null"))))
    return found


def show(*data: AnyEvent, cursor: str | None = "1-1") -> list[tuple[str, Any]]:
    """Names and payloads, without the id and the conversation that every event has."""
    projector = StepsProjector()
    shown = [read(projector.project_frame(frame(each, cursor))) for each in data]
    common = ("id", "conversation_id")
    return [
        (event, {key: value for key, value in body.items() if key not in common})
        for frames in shown
        for _, event, body in frames
        if event
    ]


def delta(channel: str, index: int, text: str, *, completed: bool = False) -> ChatDelta:
    return ChatDelta(channel=channel, instance=0, index=index, text=text, completed=completed, marker=channel)


def test_a_tool_call_is_an_iteration_with_its_observation() -> None:
    started = ChatStep(step="call_1", status="started", title="Search", tool_id="web.search", params={"q": "x"})
    ended = ChatStep(
        step="call_1", status="error", title="Search", tool_id="web.search", result_preview="no", duration_ms=1500,
        error="timeout",
    )  # fmt: skip

    (_, first), (_, last) = show(started, ended)

    assert (first["type"], first["status"], first["iteration"]) == ("iteration", "start", 2)
    assert (first["tool_name"], first["tool_args"]) == ("web.search", {"q": "x"})
    assert (last["status"], last["observation"], last["error"], last["iter_elapsed"]) == ("done", "no", "timeout", 1.5)


def test_an_answer_begins_grows_and_ends() -> None:
    shown = show(delta("answer", 0, "Hel"), delta("answer", 1, "lo"), delta("answer", 2, "", completed=True))

    assert [(event, body["status"], body.get("content")) for event, body in shown] == [
        ("step", "start", None),
        ("answer", "start", None),
        ("answer", "delta", "Hel"),
        ("answer", "delta", "lo"),
        ("answer", "done", None),
    ]


def test_each_model_call_is_thinking_that_begins_and_ends() -> None:
    shown = show(
        ChatPhase(phase="model_called"),
        delta("thinking", 0, "Let me "),
        delta("thinking", 1, "see."),
        ChatPhase(phase="model_thought", thinking="Let me see."),
        delta("thinking", 2, "", completed=True),
    )

    assert shown == [
        ("step", {"turn_id": "t", "type": "thinking", "status": "start", "iteration": 2}),
        ("step", {"turn_id": "t", "type": "thinking", "status": "done", "iteration": 2, "reasoning": "Let me see."}),
    ]


def test_the_selection_of_tools_is_a_phase() -> None:
    shown = show(ChatPhase(phase="selecting_tools", total_tools=30))

    assert shown == [("phase", {"turn_id": "t", "phase": "selecting_tools", "total_tools": 30})]


def test_a_phase_of_a_newer_worker_is_a_phase() -> None:
    frames = StepsProjector().project_frame(
        frame(ChatPhase(phase="model_called")).replace(b"model_called", b"model_dreams")
    )

    ((_, event, body),) = read(frames)
    assert (event, body["phase"]) == ("phase", "model_replying")


def test_a_compaction_counts_messages_and_tokens_if_its_worker_did() -> None:
    done = ChatCompaction(
        status="completed", reason="hard", before_tokens=900, after_tokens=300, original_messages=40, kept_messages=9
    )
    older = ChatCompaction(status="completed", reason="hard", before_tokens=900, after_tokens=300)

    (_, counted), (_, uncounted) = show(done, older)

    assert counted == {
        "turn_id": "t", "original_messages": 40, "kept_messages": 9, "before_tokens": 900, "after_tokens": 300,
    }  # fmt: skip
    assert (uncounted["original_messages"], uncounted["kept_messages"]) == (None, None)


def test_an_approval_and_its_answer_are_sent_live_and_after_a_rewind() -> None:
    asked = ChatApproval(
        approval_id="appr_1", call_id="call_1", tool_id="mail.send", params={"to": "ann"}, state="pending",
        expires_at="2026-03-02T12:00:00.000Z", explanation="It sends mail.", connect_url="https://chat.example/connect",
        details="1 mail to ann",
    )  # fmt: skip
    denied = asked.model_copy(update={"state": "denied", "reason": "Not today."})
    kept = ApprovalView.model_validate({**asked.model_dump(exclude={"type"}), "round": 2})
    turn = TurnView(turn_id="t", ordinal=1, status="waiting", text="Hi", approvals=(kept,))

    shown = show(asked, ConvStatus(state="waiting"), denied, ChatRewind(turn=turn))

    assert [event for event, _ in shown] == ["approval", "phase", "approval", "reset", "turn", "approval"]
    pending, phase, settled, again = shown[0][1], shown[1][1], shown[2][1], shown[5][1]
    assert pending == {
        "turn_id": "t", "approval_id": "appr_1", "tool_id": "mail.send", "params": {"to": "ann"}, "cut": False,
        "state": "pending", "reason": "", "expires_at": "2026-03-02T12:00:00.000Z", "explanation": "It sends mail.",
        "connect_url": "https://chat.example/connect", "details": "1 mail to ann",
    }  # fmt: skip
    assert phase == {"phase": "waiting", "position": None}
    assert (settled["state"], settled["reason"]) == ("denied", "Not today.")
    assert again == pending


def test_a_new_client_of_a_waiting_conversation_gets_its_approval() -> None:
    scenario = ApprovalScenario()
    scenario.start_turn("Send it")
    scenario.start_round()
    scenario.ask(scenario.add_call("mail.send", {}), "mail.send", {"to": "ann"})
    scenario.commit()
    waiting = replace(scenario.page, conversation=replace(scenario.conversation, state=ConversationState.WAITING))

    shown = show(StreamSnapshot(state=build_state(waiting, tenant=TENANT, project=PROJECT)))

    assert [event for event, _ in shown] == ["reset", "turn", "step", "step", "step", "approval", "phase"]
    assert [body["type"] for event, body in shown if event == "step"] == ["thinking", "thinking", "iteration"]
    assert (shown[5][1]["state"], shown[6][1]["phase"]) == ("pending", "waiting")


def test_turn_phase_and_injection_are_sent() -> None:
    signal = ChatSignal(signal_id="s", kind="followup", state="applied", text="Only the north.", round=2)
    shown = show(ConvStatus(state="queued", position=3), ChatStart(turn_id="t", ordinal=1, text="Hi"), signal)

    assert [event for event, _ in shown] == ["phase", "turn", "inject"]
    assert shown[0][1] == {"phase": "queued", "position": 3}
    assert shown[2][1]["content"] == "Only the north."


def test_the_hint_of_an_applied_signal_injects_nothing_again() -> None:
    signal = ChatSignal(signal_id="s", kind="followup", state="applied", text="Only the north.", round=2)

    assert show(signal, cursor=None) == []


def test_the_end_carries_the_whole_result_or_the_error() -> None:
    usage = TurnUsage(input_tokens=3, output_tokens=4)
    done = ChatComplete(outcome="completed", answer="42", rounds=2, usage=usage, elapsed_ms=2500)
    failed = ChatError(problem=problem("model-failed", "No.", 502), rounds=1, usage=usage, elapsed_ms=10)

    ((_, good),), ((_, bad),) = show(done), show(failed)

    assert (good["answer"], good["iterations"], good["elapsed"], good["error"]) == ("42", 2, 2.5, None)
    assert good["usage"]["output_tokens"] == 4
    assert (bad["answer"], bad["error"]["status"]) == (None, 502)


def test_a_rewind_restarts_the_turn() -> None:
    step = StepView(step="c", status="completed", title="Echo", round=1, tool_id="demo.echo", result_preview="a")
    texts = (
        TextView(round=1, channel="thinking", instance=0, marker="thinking", format="markdown", text="One."),
        TextView(round=1, channel="thinking", instance=1, marker="thinking", format="markdown", text="Two."),
        TextView(round=2, channel="answer", instance=0, marker="answer", format="markdown", text="So far"),
    )
    signals = (
        SignalView(signal_id="s_1", kind="followup", state="applied", text="Only the north.", round=1),
        SignalView(signal_id="s_2", kind="followup", state="accepted", text="And the south."),
        SignalView(signal_id="s_3", kind="cancel", state="applied", text="", round=1),
    )
    turn = TurnView(
        turn_id="t", ordinal=1, status="running", text="Hi", steps=(step,), texts=texts, signals=signals, sealed_round=1
    )

    shown = show(ChatRewind(turn=turn))

    assert [(event, body.get("type"), body.get("status")) for event, body in shown] == [
        ("reset", None, None),
        ("turn", None, None),
        ("inject", "inject", None),
        ("step", "thinking", "start"),
        ("step", "thinking", "done"),
        ("step", "iteration", "start"),
        ("step", "iteration", "done"),
        ("step", "answer", "start"),
        ("answer", None, "start"),
        ("answer", None, "delta"),
    ]
    assert shown[2][1]["content"] == "Only the north."
    assert shown[4][1]["reasoning"] == "One.\n\nTwo."
    assert shown[-1][1]["content"] == "So far"


def test_events_of_a_step_of_a_plan_name_it() -> None:
    asked = ChatApproval(
        approval_id="appr_1", call_id="call_1", tool_id="mail.send", params={}, state="pending",
        expires_at="2026-03-02T12:00:00.000Z",
    )  # fmt: skip
    phases = ("model_called", "model_thought", "model_waiting")
    events: list[AnyEvent] = [*(ChatPhase(phase=phase) for phase in phases), asked]

    of_turn = show(*events)
    of_step = show(*(each.model_copy(update={"step_id": "s1"}) for each in events))

    assert all("step_id" not in body for _, body in of_turn)
    assert of_step == [(event, {**body, "step_id": "s1"}) for event, body in of_turn]


def test_after_a_rewind_each_round_of_a_step_shows_how_far_it_is() -> None:
    """A newer round can be committed while an older one of another step is open."""
    thought = TextView(round=3, channel="thinking", instance=0, marker="thinking", format="markdown", text="Hm.")
    rounds = (StepRoundView(round=2, step_id="a", sealed=False), StepRoundView(round=3, step_id="b", sealed=True))
    turn = TurnView(
        turn_id="t", ordinal=1, status="running", text="Hi", texts=(thought,), sealed_round=1, step_rounds=rounds
    )

    shown = [body for event, body in show(ChatRewind(turn=turn)) if event == "step"]

    assert [(body["iteration"], body.get("step_id"), body["status"], body.get("reasoning")) for body in shown] == [
        (1, None, "start", None),
        (1, None, "done", ""),
        (2, "a", "start", None),
        (3, "b", "start", None),
        (3, "b", "done", "Hm."),
    ]


def test_a_turn_that_ended_in_the_state_shown_does_not_end_again() -> None:
    turn = TurnView(turn_id="t", ordinal=1, status="completed", text="Hi", outcome="completed", answer="42", rounds=1)
    end = ChatComplete(outcome="completed", answer="42", rounds=1, usage=TurnUsage(), elapsed_ms=5)

    shown = show(ChatRewind(turn=turn), end)

    assert [event for event, _ in shown] == ["reset", "turn", "done"]


def test_the_last_of_several_frames_has_the_id() -> None:
    projector = StepsProjector()

    several = read(projector.project_frame(frame(delta("answer", 0, "a"), "3-7")))
    none = projector.project_frame(frame(ChatFollowups(items=("b",)), "3-8"))
    unknown = projector.project_frame(encode_frame("chat.later", b'{"type":"chat.later"}', cursor="3-9"))
    hint = projector.project_frame(frame(ConvStatus(state="idle"), None))

    assert [cursor for cursor, _, _ in several] == [None, None, "3-7"] == [body.get("id") for _, _, body in several]
    assert {body["conversation_id"] for _, _, body in several} == {"c"}
    assert (none, unknown, hint) == (b"id: 3-8\n\n", b"id: 3-9\n\n", b"")


async def test_chunks_of_many_frames_comments_and_farewells_pass() -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield HEARTBEAT + frame(delta("answer", 0, "line\n\nbreak"), "3-1")
        yield frame(ConvStatus(state="idle"), None)
        yield frame(ServerShutdown(retry_ms=700), None, retry_ms=700)

    got = [chunk async for chunk in project_steps(chunks())]

    assert got[0].startswith(HEARTBEAT)
    assert b'"content":"line\\n\\nbreak"' in got[0]
    assert b"event: server_shutdown\n" in got[1]
    assert got[1].endswith(b"\nretry: 700\n\n")
    assert len(got) == 2


async def test_a_large_chunk_is_projected_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def parse(encoded: bytes) -> Envelope:
        threads.append(threading.get_ident())
        return parse_envelope(encoded)

    async def chunks() -> AsyncGenerator[bytes]:
        for text in ("small", "x" * ON_LOOP_SIZE):
            yield frame(delta("answer", 1, text))

    monkeypatch.setattr("ingress.stream.steps.parse_envelope", parse)

    small, large = [read(chunk) async for chunk in project_steps(chunks())]

    assert [len(body["content"]) for _, _, body in (*small, *large)] == [5, ON_LOOP_SIZE]
    assert [thread == threading.get_ident() for thread in threads] == [True, False]

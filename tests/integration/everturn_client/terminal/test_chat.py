"""One turn in a terminal."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everturn.core.ids import CallId
from everturn.events.model import ChatCompaction, ChatPhase, ConvStatus, parse_envelope
from everturn.timeline.blocks import CompletionBody, ThinkingBody, ToolResultBody
from everturn.timeline.turns import Outcome
from everturn_testing.events.scenarios import Scenario, make_artifact
from everturn_testing.turns.approval_scenarios import ApprovalScenario

pytestmark = pytest.mark.sampled

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer
    from tests.integration.everturn_client.terminal.conftest import Everturn


def publish_begin(scenario: Scenario) -> None:
    turn_id = scenario.start_turn("Draw it")
    scenario.start_round()
    scenario.add(ThinkingBody(text=scenario.stream("thinking", 0, ["Let me see."])))
    call_id = scenario.add_call("exec_tools.run", {"prog_name": "draw"})
    scenario.commit()
    scenario.show_step(call_id)
    artifact = make_artifact(turn_id, "chart.png")
    result = ToolResultBody(tool_id="exec_tools.run", status="ok", text="", artifacts=(artifact,), duration_ms=20)
    scenario.add(result, call_id=call_id)
    scenario.commit()
    scenario.show_step(call_id)
    scenario.show_files([artifact])


def publish_end(scenario: Scenario, outcome: Outcome = Outcome.COMPLETED) -> None:
    scenario.start_round()
    scenario.add(CompletionBody(text=scenario.stream("answer", 0, ["Here ", "it is."])))
    scenario.end_turn(outcome)


def publish_compaction(scenario: Scenario) -> None:
    begun = ChatCompaction(status="started", reason="soft", before_tokens=70_000)
    for event in (begun, begun.model_copy(update={"status": "completed", "after_tokens": 9_000})):
        scenario.events.append(scenario.events[-1].model_copy(update={"id": None, "type": event.type, "data": event}))


def publish_positions(scenario: Scenario, turn_id: str, *places: int) -> None:
    for place in places:
        event = ConvStatus(state="queued", turn_id=turn_id, position=place)
        scenario.events.append(scenario.events[-1].model_copy(update={"id": None, "type": event.type, "data": event}))


async def test_the_answer_goes_to_stdout_and_the_rest_to_stderr(
    server: "SmallServer", everturn: "Everturn", tmp_path: Path
) -> None:
    publish_begin(server.scenario)
    server.snapshot_page = 0
    server.stream_faults = ["bytes:2000"]
    server.files["art_chart.png"] = b"image"

    running = await everturn.start("chat", "Draw it", "--download", str(tmp_path / "files"))
    await server.wait_for("GET", "/events")
    assert json.loads(await server.wait_for("POST", "/messages"))["time_zone"] == "Asia/Tokyo"
    publish_end(server.scenario)
    await server.publish()
    out, err = (stream.decode() for stream in await asyncio.wait_for(running.communicate(), 20))

    assert running.returncode == 0
    assert out == "Here it is.\n"
    conversation_id = server.scenario.conversation.id
    for event in (
        "Let me see.\n",
        "▸ draw …\n",
        "✓ draw (20 ms)\n",
        f"chart.png (9 bytes)   everturn --url {server.url} download art_chart.png",
        "2 rounds · 12 ms · 22 tokens",
        f"Conversation {conversation_id}. Continue with: "
        f'everturn --url {server.url} chat --conversation {conversation_id} "…"',
    ):
        assert event in err
    assert "\x1b" not in out + err
    assert (tmp_path / "files" / "chart.png").read_bytes() == b"image"


async def test_a_cut_answer_has_its_own_line_and_exit_code(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Tell me all")
    server.snapshot_page = 0
    waiting = ChatPhase(phase="model_retrying", retry_in_ms=1500, attempt=2, max_attempts=8, reason="rate_limited")
    last = server.scenario.events[-1]
    server.scenario.events.append(last.model_copy(update={"id": None, "type": waiting.type, "data": waiting}))
    publish_end(server.scenario, Outcome.CUT)

    code, out, err = await everturn.run("chat", "Tell me all")

    assert (code, out) == (4, "Here it is.\n")
    assert "· the model did not answer; trying again in 1.5 s (attempt 2 of 8)\n" in err
    assert "This answer was cut off: it reached the model's length limit." in err


@pytest.mark.parametrize(
    ("outcome", "code"), [(Outcome.CAPPED, 4), (Outcome.STOPPED, 0), (Outcome.CANCELLED, 1), (Outcome.COMPLETED, 0)]
)
async def test_the_exit_code_says_how_the_turn_ended(
    server: "SmallServer", everturn: "Everturn", outcome: Outcome, code: int
) -> None:
    server.scenario.start_turn("Tell me all")
    server.snapshot_page = 0
    publish_end(server.scenario, outcome)

    ended, _, err = await everturn.run("chat", "Tell me all")

    assert ended == code
    assert ("reached a limit" in err) == (outcome is Outcome.CAPPED)


async def test_a_compaction_and_the_sources_are_shown(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Look it up")
    server.snapshot_page = 0
    server.scenario.start_round()
    publish_compaction(server.scenario)
    server.scenario.answer(server.scenario.stream("answer", 0, ["It is so."]), cited=[1])
    server.scenario.end_turn(Outcome.COMPLETED)

    code, out, err = await everturn.run("chat", "Look it up")

    assert (code, out) == (0, "It is so.\n")
    assert (
        "▸ summarizing earlier messages (70,000 tokens) …\n✓ summarized earlier messages (70,000 → 9,000 tokens)\n"
        in err
    )
    assert "Sources:\n  [1] Title 1  https://a.example/1\n" in err


async def test_a_queued_turn_shows_its_position_as_it_falls(server: "SmallServer", everturn: "Everturn") -> None:
    server.position = 3
    turn_id = server.scenario.start_turn("Look it up")
    server.snapshot_page = 0
    publish_positions(server.scenario, "turn_of_another_time", 9)
    publish_positions(server.scenario, turn_id, 3, 3, 1, 0)
    server.scenario.start_round()
    server.scenario.answer(server.scenario.stream("answer", 0, ["It is so."]))
    server.scenario.end_turn(Outcome.COMPLETED)

    code, out, err = await everturn.run("chat", "Look it up")

    assert (code, out) == (0, "It is so.\n")
    assert [line for line in err.splitlines() if "waiting" in line] == [
        "· waiting, 3 messages are ahead",
        "· waiting, one message is ahead",
        "· waiting, next in line",
    ]


async def test_a_failed_turn_says_why_and_ends_with_code_1(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Hi")
    server.scenario.end_turn("failed")

    code, _, err = await everturn.run("chat", "Hi")

    assert code == 1
    assert "The answer failed: The model failed." in err


async def test_events_are_printed_as_json_lines(server: "SmallServer", everturn: "Everturn") -> None:
    publish_begin(server.scenario)
    publish_end(server.scenario)
    server.snapshot_page = 0

    code, out, err = await everturn.run("chat", "Draw it", "--json")

    types = [parse_envelope(line).type for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert (types[0], types[-1]) == ("stream.snapshot", "chat.complete")


async def test_the_first_interrupt_cancels_the_turn_and_waits_for_its_end(
    server: "SmallServer", everturn: "Everturn"
) -> None:
    server.scenario.start_turn("Hi")
    server.scenario.start_round()
    server.scenario.stream("canvas", 0, ["Well"], artifact="files/a.md")
    running = await everturn.start("chat", "Hi")
    await server.wait_for("GET", "/events")
    assert running.stderr
    await asyncio.wait_for(running.stderr.readuntil("✎ writing files/a.md\n".encode()), 20)

    running.send_signal(signal.SIGINT)
    signalled = await server.wait_for("POST", "/signals")
    server.scenario.end_turn(Outcome.CANCELLED)
    await server.publish()
    _, err = await asyncio.wait_for(running.communicate(), 20)

    assert json.loads(signalled) == {"kind": "cancel", "text": ""}
    assert running.returncode == 1
    assert "This answer was cancelled." in err.decode()


async def test_the_second_interrupt_exits_at_once(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Hi")
    server.scenario.start_round()
    server.scenario.stream("canvas", 0, ["Well"], artifact="files/a.md")
    running = await everturn.start("chat", "Hi")
    assert running.stderr
    await asyncio.wait_for(running.stderr.readuntil("✎ writing files/a.md\n".encode()), 20)

    running.send_signal(signal.SIGINT)
    await server.wait_for("POST", "/signals")
    running.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(running.communicate(), 20)

    assert running.returncode == 130
    assert b"Traceback" not in err


async def test_a_deleted_last_conversation_is_reported_with_advice(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Hi")
    server.scenario.end_turn(Outcome.COMPLETED)
    conversation_id = server.scenario.conversation.id
    await everturn.run("chat", "Hi")
    server.is_deleted = True

    code, out, err = await everturn.run("chat", "Again", "--continue")

    assert (code, out) == (2, "")
    assert f"Your last conversation, {conversation_id}, was deleted. Leave out --continue to start a new one" in err
    assert len(server.sent("/messages")) == 1


async def test_the_last_conversation_can_be_continued(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Hi")
    server.scenario.end_turn(Outcome.COMPLETED)

    first, _, err = await everturn.run("chat", "Hi", "--continue")
    second, _, _ = await everturn.run("chat", "Hi")
    third, _, _ = await everturn.run("chat", "Again", "--continue")

    assert (first, second, third) == (2, 0, 0)
    assert "There is no previous conversation" in err
    assert json.loads(await server.wait_for("POST", f"/{server.scenario.conversation.id}/messages")) == {
        "text": "Again",
        "time_zone": "Asia/Tokyo",
    }


def start_approval(server: "SmallServer") -> tuple[ApprovalScenario, CallId, str]:
    server.scenario = scenario = ApprovalScenario()
    scenario.start_turn("Send it")
    scenario.start_round()
    call_id = scenario.add_call("mail.send", {"to": "ann"})
    approval_id = scenario.ask(call_id, "mail.send", {"to": "ann"})
    scenario.commit()
    return scenario, call_id, approval_id


async def end_approval(server: "SmallServer", scenario: ApprovalScenario, call_id: CallId) -> None:
    scenario.settle_question(call_id, "approved")
    scenario.start_round()
    scenario.answer(scenario.stream("answer", 0, ["Sent."]))
    scenario.end_turn(Outcome.COMPLETED)
    await server.publish()


AGENTS: list[dict[str, object]] = [
    {"id": "desk", "title": "Desk", "is_default": True},
    {"id": "sales", "title": "Sales"},
    {"id": "broken", "title": "Broken", "is_ready": False, "error": "It has no id."},
]


@pytest.mark.parametrize("agent", ["slaes", "broken"])
async def test_an_agent_that_cannot_be_used_is_refused_with_the_others(
    server: "SmallServer", everturn: "Everturn", agent: str
) -> None:
    server.agents = AGENTS

    code, _, err = await everturn.run("chat", "Hi", "--agent", agent)

    assert code == 2
    assert f"There is no agent {agent} that you can use. Those that you can use: desk, sales." in err
    assert not server.sent("/messages")


@pytest.mark.parametrize(
    ("own", "chosen", "goes_on"),
    [(None, "default", True), (None, "desk", True), ("sales", "sales", True), (None, "sales", False)],
)
async def test_an_existing_conversation_keeps_its_agent(
    server: "SmallServer", everturn: "Everturn", own: str | None, chosen: str, goes_on: bool
) -> None:
    server.agents, server.bundle_id = AGENTS, own
    server.scenario.start_turn("Hi")
    publish_end(server.scenario)
    conversation_id = server.scenario.conversation.id

    code, _, err = await everturn.run("chat", "Hi", "--agent", chosen, "--conversation", conversation_id)

    if goes_on:
        assert (code, "bundle_id" in json.loads(await server.wait_for("POST", "/messages"))) == (0, False)
    else:
        assert (code, server.sent("/messages")) == (2, [])
        assert f"The conversation {conversation_id} has the agent default and keeps it. Leave out --agent" in err


async def test_without_a_terminal_the_approval_commands_are_printed(
    server: "SmallServer", everturn: "Everturn"
) -> None:
    scenario, call_id, approval_id = start_approval(server)
    running = await everturn.start("chat", "Send it")
    assert running.stderr

    printed = (await asyncio.wait_for(running.stderr.readuntil(b" deny\n"), 20)).decode()
    command = re.search(r"Allow it: everturn (.*)", printed)
    assert command
    server.is_signal = True
    answered, _, _ = await everturn.run(*command[1].split())
    body = await server.wait_for("POST", f"/{scenario.conversation.id}/signals")
    await end_approval(server, scenario, call_id)
    out, _ = await asyncio.wait_for(running.communicate(), 20)

    assert (answered, running.returncode, out) == (0, 0, b"Sent.\n")
    assert json.loads(body) == {"kind": "approve", "text": "", "approval_id": approval_id}


async def test_an_answer_in_the_terminal_of_its_message_can_be_repeated(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    ours, theirs = keyboard
    scenario, call_id, approval_id = start_approval(server)
    running = await everturn.start("chat", "Send it", stdin=theirs, stderr=theirs)

    printed = b""
    while b"to deny it." not in printed:
        printed += await asyncio.to_thread(os.read, ours, 4096)
    server.submit_faults.append("unreadable")
    os.write(ours, b"perhaps\ny\n")
    while b"not a valid" not in printed:
        printed += await asyncio.to_thread(os.read, ours, 4096)
    server.is_signal = True
    os.write(ours, b"y\n")
    body = await server.wait_for("POST", "/signals", count=2)
    await end_approval(server, scenario, call_id)
    out, _ = await asyncio.wait_for(running.communicate(), 20)

    assert (running.returncode, out) == (0, b"Sent.\n")
    assert json.loads(body) == {"kind": "approve", "text": "", "approval_id": approval_id}


async def test_a_closed_output_pipe_ends_the_command_quietly(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Hi")
    server.scenario.start_round()
    server.scenario.stream("answer", 0, ["Well"])
    running = await everturn.start("chat", "Hi", "--json")
    assert running.stdout and running.stderr
    await asyncio.wait_for(running.stdout.readline(), 20)

    running.stdout._transport.close()  # type: ignore[attr-defined] # the only way to end reading as `head` does
    publish_end(server.scenario)
    await server.publish()
    err = await asyncio.wait_for(running.stderr.read(), 20)

    assert (await asyncio.wait_for(running.wait(), 20), err) == (141, b"")

"""The interactive prompt."""

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest

from everturn.timeline.blocks import CompletionBody
from everturn.timeline.turns import Outcome
from everturn_testing.events.scenarios import make_artifact
from everturn_testing.turns.approval_scenarios import ApprovalScenario

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer
    from tests.integration.everturn_client.terminal.conftest import Everturn


async def test_text_typed_while_a_turn_runs_reaches_the_turn(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    scenario, (ours, theirs) = server.scenario, keyboard
    scenario.start_turn("Hi", attachments=[make_artifact(scenario.start_turn("Before"), "sales.csv")])
    running = await everturn.start("chat", stdin=theirs)

    os.write(ours, b"/cancel\n/files\nHi\n")
    await server.wait_for("GET", "/events")
    server.submit_faults.append("unreadable")
    os.write(ours, b"/steer Only south\n")
    await server.wait_for("POST", "/signals")
    server.is_signal = True
    os.write(ours, b"And this?\n")
    followup = await server.wait_for("POST", "/messages", count=2)
    os.write(ours, b"/steer Only north\n")
    steer = await server.wait_for("POST", "/signals", count=2)
    os.write(ours, b"/cancel\n")
    cancel = await server.wait_for("POST", "/signals", count=3)
    os.write(ours, b"/files\n")
    await server.wait_for("POST", "/fetch")
    scenario.start_round()
    scenario.add(CompletionBody(text=scenario.stream("answer", 0, ["Hello."])))
    scenario.end_turn(Outcome.COMPLETED)
    await server.publish()
    assert running.stderr
    beginning = await asyncio.wait_for(running.stderr.readuntil(b" tokens"), 20)
    os.write(ours, b"/quit\n")
    out, rest = await asyncio.wait_for(running.communicate(), 20)
    err = (beginning + rest).decode()

    assert (running.returncode, out.decode()) == (0, "Hello.\n")
    assert [json.loads(body)["text"] for body in (followup, steer, cancel)] == ["And this?", "Only north", ""]
    assert "Nothing is running." in err
    assert "There are no files." in err
    assert f"sales.csv (9 bytes)   everturn --url {server.url} download art_sales.csv" in err


DESK = {"id": "desk", "title": "Desk", "starters": ["Open a ticket", "Which are open?"]}
SALES = {"id": "sales", "title": "Sales", "starters": ["What sold?"], "is_default": True}


@pytest.mark.parametrize(("chosen", "bundle_id"), [(["--agent", "desk"], "desk"), ([], None)])
async def test_a_new_conversation_begins_with_a_starter_of_its_agent(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int], chosen: list[str], bundle_id: str | None
) -> None:
    server.agents = [SALES, DESK]
    server.scenario.start_turn("Hi")
    running = await everturn.start("chat", *chosen, stdin=keyboard[1])
    assert running.stderr

    beginning = (await asyncio.wait_for(running.stderr.readuntil(b"\n> "), 20)).decode()
    server.submit_faults = [422]
    os.write(keyboard[0], b"3\n1\n")
    sent = json.loads(await server.wait_for("POST", "/messages", count=2))
    server.is_signal = True
    os.write(keyboard[0], b"1\n")
    followup = json.loads(await server.wait_for("POST", "/messages", count=3))
    os.write(keyboard[0], b"/quit\n")
    await asyncio.wait_for(running.communicate(), 20)

    starters = ["Open a ticket", "Which are open?"] if bundle_id else ["What sold?"]
    assert [line[5:] for line in beginning.splitlines() if line.startswith("  ")] == starters
    assert (sent["text"], sent.get("bundle_id")) == (starters[0], bundle_id)
    assert (followup["text"], followup.get("bundle_id")) == ("1", None)


async def test_an_incomplete_starter_is_completed_also_after_a_command(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    server.agents = [SALES | {"starters": ["Reserve a drill for:", "What sold?"]}]
    server.scenario.start_turn("Hi")
    server.submit_faults = [422]
    running = await everturn.start("chat", stdin=keyboard[1])
    assert running.stderr

    await asyncio.wait_for(running.stderr.readuntil(b"\n> "), 20)
    os.write(keyboard[0], b"1\n")
    await asyncio.wait_for(running.stderr.readuntil(b"> Reserve a drill for: "), 20)
    os.write(keyboard[0], b"/files\n")
    await asyncio.wait_for(running.stderr.readuntil(b"There are no files.\n> Reserve a drill for: "), 20)
    os.write(keyboard[0], b"2\n")
    completed = json.loads(await server.wait_for("POST", "/messages"))
    os.write(keyboard[0], b"1\n\n2\n")
    other = json.loads(await server.wait_for("POST", "/messages", count=2))
    os.write(keyboard[0], b"/quit\n")
    await asyncio.wait_for(running.communicate(), 20)

    assert (completed["text"], other["text"]) == ("Reserve a drill for: 2", "What sold?")


async def test_a_rejected_message_does_not_end_the_prompt(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    server.scenario.start_turn("Hi")
    server.submit_faults = [422]
    running = await everturn.start("chat", stdin=keyboard[1])

    os.write(keyboard[0], b"Hi\n\n/dance\n/quit\n")
    _, err = (stream.decode() for stream in await asyncio.wait_for(running.communicate(), 20))

    assert running.returncode == 0
    assert "Refused on purpose (422)." in err
    assert err.count("if the agent is working, it is added to the running turn") == 2


async def test_leaving_the_prompt_leaves_the_turn_running(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    server.scenario.start_turn("Hi")
    running = await everturn.start("chat", stdin=keyboard[1])

    os.write(keyboard[0], b"Hi\n")
    await server.wait_for("GET", "/events")
    os.write(keyboard[0], b"/quit\n")
    _, err = (stream.decode() for stream in await asyncio.wait_for(running.communicate(), 20))

    assert running.returncode == 0
    assert "The agent continues without you" in err
    assert not server.sent("/signals")


async def test_an_approval_is_answered_at_the_prompt(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    server.scenario = scenario = ApprovalScenario()
    scenario.start_turn("Send it")
    scenario.start_round()
    calls = [scenario.add_call("mail.send", {"to": name}) for name in ("ann", "bob")]
    asked = [scenario.ask(call, "mail.send", {"to": name}) for call, name in zip(calls, ("ann", "bob"), strict=True)]
    scenario.commit()
    server.is_signal = True
    running = await everturn.start("chat", "--conversation", scenario.conversation.id, stdin=keyboard[1])
    assert running.stderr

    first = await asyncio.wait_for(running.stderr.readuntil(b"to deny it."), 20)
    os.write(keyboard[0], b"y\n")
    allowed = await server.wait_for("POST", "/signals")
    scenario.settle_question(calls[0], "approved")
    await server.publish()
    second = await asyncio.wait_for(running.stderr.readuntil(b"to deny it."), 20)
    os.write(keyboard[0], b"and wait\nn, not him\n")
    denied = await server.wait_for("POST", "/signals", count=2)
    scenario.settle_question(calls[1], "denied", "not him")
    scenario.start_round()
    alone = scenario.add_call("mail.send", {"to": "eve"})
    scenario.ask(alone, "mail.send", {"to": "eve"})
    scenario.ask(alone, "mail.send", {"to": "eve"})
    scenario.commit()
    scenario.show_question(alone)
    await server.publish()
    third = await asyncio.wait_for(running.stderr.readuntil(b"\nType y to allow it,"), 20)
    scenario.settle_question(alone, "approved")
    scenario.start_round()
    scenario.answer(scenario.stream("answer", 0, ["Done."]))
    scenario.end_turn(Outcome.COMPLETED)
    await server.publish()
    await asyncio.wait_for(running.stderr.readuntil(b" tokens"), 20)
    os.write(keyboard[0], b"y\n")
    message = await server.wait_for("POST", "/messages", count=2)
    os.write(keyboard[0], b"/quit\n")
    await asyncio.wait_for(running.communicate(), 20)

    assert b'? Allow mail.send? {"to": "bob"}' in first
    assert b"everturn" not in first
    assert b'mail.send {"to": "ann"} approved' in second
    assert [json.loads(body) for body in (allowed, denied)] == [
        {"kind": "approve", "text": "", "approval_id": asked[0]},
        {"kind": "deny", "text": "not him", "approval_id": asked[1]},
    ]
    assert b"The tool call still needs a y or n." in third
    assert b'? Allow mail.send? {"to": "eve"}' in third
    assert json.loads(message)["text"] == "y"

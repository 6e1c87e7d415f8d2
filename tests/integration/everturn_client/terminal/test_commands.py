"""The commands besides chat."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from everturn.model import block_bodies as bodies
from everturn.model.turns import Outcome
from everturn.testing.runs.asking_stories import AskingStory
from everturn.wire.views import StateView

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer
    from tests.integration.everturn_client.terminal.conftest import Everturn


async def test_conversations_are_listed(server: "SmallServer", everturn: "Everturn") -> None:
    server.story.start_turn("Hi")

    code, out, _ = await everturn.run("conversations")

    assert (code, out) == (0, f"{server.story.conversation.id}  2026-01-02 03:04  running  (no title)\n")


async def test_a_conversation_is_shown_and_given_as_json(server: "SmallServer", everturn: "Everturn") -> None:
    server.story.start_turn("What is \x1b[2Jthis?")
    server.story.start_round()
    server.story.add(bodies.CompletionBody(text="A test."))
    server.story.end_turn(Outcome.COMPLETED)

    code, out, err = await everturn.run("show", server.story.conversation.id)
    as_json = await everturn.run("show", server.story.conversation.id, "--json")

    assert (code, out) == (0, "> What is \\u001b[2Jthis?\nA test.\n")
    assert "[1] turn_" in err
    assert StateView.model_validate_json(as_json[1]).turns[0].answer == "A test."


async def test_a_file_is_downloaded(server: "SmallServer", everturn: "Everturn", tmp_path: Path) -> None:
    server.files["art_a.csv"] = b"1,2"

    code, _, err = await everturn.run("download", "art_a.csv", "-o", str(tmp_path))
    absent, _, _ = await everturn.run("download", "art_b.csv", "-o", str(tmp_path))

    assert (code, absent) == (0, 1)
    assert f"Saved {tmp_path / 'a.csv'}" in err
    assert (tmp_path / "a.csv").read_bytes() == b"1,2"


async def test_a_turn_is_judged(server: "SmallServer", everturn: "Everturn") -> None:
    code, _, _ = await everturn.run("feedback", "turn_1", "not_ok", "--conversation", "conv_1", "--text", "Wrong sum")

    body = await server.wait_for("POST", "/conv_1/turns/turn_1/feedback")
    assert (code, json.loads(body)) == (0, {"reaction": "not_ok", "text": "Wrong sum"})


async def test_a_signal_is_sent_and_told_where_it_went(server: "SmallServer", everturn: "Everturn") -> None:
    turn_id = server.story.start_turn("Hi")
    server.is_signal = True

    code, _, err = await everturn.run("signal", "steer", "North", "--conversation", "conv_1", "--turn", turn_id)

    body = await server.wait_for("POST", "/conv_1/signals")
    assert (code, json.loads(body)) == (0, {"kind": "steer", "text": "North", "target_turn_id": turn_id})
    assert f"Signal sig_1 accepted for turn {turn_id}." in err


async def test_a_question_is_answered_with_a_reason(server: "SmallServer", everturn: "Everturn") -> None:
    turn_id = server.story.start_turn("Hi")
    server.is_signal = True

    code, _, err = await everturn.run("answer", "appr_1", "deny", "Not today.", "--conversation", "conv_1")

    body = await server.wait_for("POST", "/conv_1/signals")
    assert (code, json.loads(body)) == (0, {"kind": "deny", "text": "Not today.", "approval_id": "appr_1"})
    assert f"Answer accepted for turn {turn_id}." in err


async def test_a_question_is_shown_with_its_conversation(server: "SmallServer", everturn: "Everturn") -> None:
    server.story = story = AskingStory()
    story.start_turn("Send it")
    story.start_round()
    approval_id = story.ask(story.add_call("mail.send", {}), "mail.send", {"to": "ann"})
    story.commit()

    code, _, err = await everturn.run("show", story.conversation.id)

    assert code == 0
    assert '? May mail.send be called? {"to": "ann"}' in err
    assert f"everturn answer {approval_id} approve|deny" in err


async def test_an_event_is_sent_with_its_payload(server: "SmallServer", everturn: "Everturn") -> None:
    server.story.start_turn("Hi")
    server.is_signal = True

    line = ["signal", "event", "Sent.", "--conversation", "conv_1", "--sort", "form", "--payload", '{"n": 1}']
    code, _, _ = await everturn.run(*line, "--record-only")

    body = json.loads(await server.wait_for("POST", "/conv_1/signals"))
    assert code == 0
    assert body["event"] == {"kind": "form", "payload": {"n": 1}, "reactive": False, "iteration_credit": 0}

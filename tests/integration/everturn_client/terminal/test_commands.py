"""All commands except `chat`."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everturn.core.ids import TurnId
from everturn.events.views import StateView
from everturn.timeline.blocks import CompletionBody
from everturn.timeline.turns import Outcome
from everturn_testing.events.scenarios import make_artifact
from everturn_testing.turns.approval_scenarios import ApprovalScenario

pytestmark = pytest.mark.sampled

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer
    from tests.integration.everturn_client.terminal.conftest import Everturn


async def test_conversations_are_listed(server: "SmallServer", everturn: "Everturn") -> None:
    empty = await everturn.run("list")
    server.scenario.start_turn("What are the totals\nby region? " + "And by month? " * 20)

    code, out, _ = await everturn.run("list")

    line = f"{server.scenario.conversation.id}  2026-01-02 03:04  running "
    words = "What are the totals by region? And by month? And by month? …"
    assert (code, out) == (0, f"{line} {words}\n")
    assert empty[1].endswith(" (new)\n")


async def test_connected_accounts_are_listed_and_deleted(server: "SmallServer", everturn: "Everturn") -> None:
    none = await everturn.run("connections")
    connected: dict[str, object] = {"server": "mail", "connected_at": "2026-03-01T12:00:00.000Z"}
    server.connections = [
        connected | {"bundle_id": "desk", "title": "Example\nMail"},
        connected | {"bundle_id": "a.b", "title": "B"},
    ]

    code, out, _ = await everturn.run("connections")
    deleted = await everturn.run("connections", "--delete", "desk/mail")
    again = await everturn.run("connections", "--delete", "desk/mail")
    wrong = await everturn.run("connections", "--delete", "mail")

    assert (code, out) == (
        0,
        "desk/mail  Example Mail, connected 2026-03-01 12:00 UTC\na.b/mail   B, connected 2026-03-01 12:00 UTC\n",
    )
    assert "No account is connected" in "".join(map(str, none))
    assert (deleted[0], again[0], wrong[0]) == (0, 1, 2)
    assert [each["bundle_id"] for each in server.connections] == ["a.b"]


async def test_agents_are_listed_as_a_table_and_as_json(server: "SmallServer", everturn: "Everturn") -> None:
    none = await everturn.run("agents")
    server.agents = [
        {
            "id": "desk",
            "title": "Support desk",
            "description": "Opens\ntickets.",
            "is_default": True,
            "problems": ["mcp.crm: away."],
        },
        {"id": "it", "title": "IT", "is_ready": True, "error": "bundle.toml, line 3: icons: Unknown key."},
        {"id": "sales", "title": "sales", "is_ready": False, "error": "The folder sales has no bundle.toml."},
    ]

    code, out, _ = await everturn.run("agents")
    as_json = await everturn.run("agents", "--json")

    assert (code, out) == (
        0,
        "* desk   Support desk  Opens tickets.\n"
        "    Problem: mcp.crm: away.\n"
        "  it     IT\n"
        "    Its newest version has an error: bundle.toml, line 3: icons: Unknown key.\n"
        "  sales  sales\n"
        "    It can't be used: The folder sales has no bundle.toml.\n",
    )
    assert [(agent["id"], agent["is_default"]) for agent in json.loads(as_json[1])][1:] == [
        ("it", False),
        ("sales", False),
    ]
    assert (none[0], none[1]) == (0, "") and "There is no agent" in none[2]


async def test_files_name_a_conversation_without_a_title(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    server.scenario.start_turn(" ", [make_artifact(TurnId("turn_1"), "sales.csv")])

    _, out, _ = await everturn.run("list")
    os.write(keyboard[0], b"n\n")
    asked = await everturn.run("delete", server.scenario.conversation.id, stdin=keyboard[1])

    assert out.endswith(" sales.csv\n")
    assert 'Delete "sales.csv" with all' in asked[2]


async def test_a_conversation_is_shown_as_text_and_as_json(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("What is \x1b[2Jthis?")
    server.scenario.start_round()
    server.scenario.add(CompletionBody(text="A test."))
    server.scenario.end_turn(Outcome.COMPLETED)

    code, out, err = await everturn.run("show", server.scenario.conversation.id)
    as_json = await everturn.run("show", server.scenario.conversation.id, "--json")

    assert (code, out) == (0, "> What is \\u001b[2Jthis?\nA test.\n")
    assert "[1] turn_" in err
    assert StateView.model_validate_json(as_json[1]).turns[0].answer == "A test."


async def test_the_last_turns_are_shown_with_the_command_for_all(server: "SmallServer", everturn: "Everturn") -> None:
    for text in ("one", "two", "three", "four", "five"):
        server.scenario.start_turn(text)
        server.scenario.end_turn(Outcome.COMPLETED)
    server.fetched_turns = 2
    conversation_id = server.scenario.conversation.id

    code, out, err = await everturn.run("show", conversation_id)
    complete = await everturn.run("show", conversation_id, "--all")
    as_json = await everturn.run("show", conversation_id, "--all", "--json")

    assert (code, out) == (0, "> four\n> five\n")
    notice = f"Older turns are left out. Show all turns with: everturn --url {server.url} show --all {conversation_id}"
    assert err.splitlines()[1] == notice
    assert (complete[0], complete[1]) == (0, "> one\n> two\n> three\n> four\n> five\n")
    assert "left out" not in complete[2]
    state = StateView.model_validate_json(as_json[1])
    assert ([turn.text for turn in state.turns][::4], state.next_cursor) == (["one", "five"], None)


async def test_a_file_is_downloaded(server: "SmallServer", everturn: "Everturn", tmp_path: Path) -> None:
    server.files["art_a.csv"] = b"1,2"

    code, _, err = await everturn.run("download", "art_a.csv", "-o", str(tmp_path))
    absent, _, _ = await everturn.run("download", "art_b.csv", "-o", str(tmp_path))

    assert (code, absent) == (0, 1)
    assert f"Saved {tmp_path / 'a.csv'}" in err
    assert (tmp_path / "a.csv").read_bytes() == b"1,2"


async def test_a_turn_is_rated(server: "SmallServer", everturn: "Everturn") -> None:
    code, _, _ = await everturn.run("feedback", "turn_1", "not_ok", "--conversation", "conv_1", "--text", "Wrong sum")

    body = await server.wait_for("POST", "/conv_1/turns/turn_1/feedback")
    assert (code, json.loads(body)) == (0, {"reaction": "not_ok", "text": "Wrong sum"})


async def test_a_signal_is_sent_and_its_receipt_is_shown(server: "SmallServer", everturn: "Everturn") -> None:
    turn_id = server.scenario.start_turn("Hi")
    server.is_signal = True

    code, _, err = await everturn.run("signal", "steer", "North", "--conversation", "conv_1", "--turn", turn_id)

    body = await server.wait_for("POST", "/conv_1/signals")
    assert (code, json.loads(body)) == (0, {"kind": "steer", "text": "North", "target_turn_id": turn_id})
    assert f"Signal sig_1 accepted for turn {turn_id}." in err


async def test_an_approval_is_denied_with_a_reason(server: "SmallServer", everturn: "Everturn") -> None:
    turn_id = server.scenario.start_turn("Hi")
    server.is_signal = True

    code, _, err = await everturn.run("answer", "appr_1", "deny", "Not today.", "--conversation", "conv_1")

    body = await server.wait_for("POST", "/conv_1/signals")
    assert (code, json.loads(body)) == (0, {"kind": "deny", "text": "Not today.", "approval_id": "appr_1"})
    assert f"Answer accepted for turn {turn_id}." in err


async def test_an_approval_is_shown_with_its_conversation(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario = scenario = ApprovalScenario()
    scenario.start_turn("Send it")
    scenario.start_round()
    approval_id = scenario.ask(scenario.add_call("mail.send", {}), "mail.send", {"to": "ann"})
    scenario.commit()

    code, _, err = await everturn.run("show", scenario.conversation.id)

    assert code == 0
    answer = f"everturn --url {server.url} answer --conversation {scenario.conversation.id} {approval_id}"
    assert '? Allow mail.send? {"to": "ann"}' in err
    assert f"  Allow it: {answer} approve\n  Deny it:  {answer} deny\n" in err


async def test_a_conversation_is_renamed_archived_copied_and_saved(
    server: "SmallServer", everturn: "Everturn", tmp_path: Path
) -> None:
    server.scenario.start_turn("Hi")
    conversation_id = server.scenario.conversation.id

    results = [
        await everturn.run(*line)
        for line in (
            ["rename", conversation_id, "Sales of May"],
            ["archive", conversation_id],
            ["unarchive", conversation_id],
            ["list", "--archived", "--title", "sales"],
            ["fork", conversation_id, "--turn", "turn_1"],
            ["export", conversation_id, "-o", str(tmp_path)],
        )
    ]

    bodies = [[json.loads(body) for method, path, _, body in server.requests if (method, path[-4:]) == kind]
            for kind in (("PATCH", conversation_id[-4:]), ("POST", "fork"))]  # fmt: skip
    assert [code for code, _, _ in results] == [0] * 6
    assert bodies == [[{"title": "Sales of May"}, {"archived": True}, {"archived": False}], [{"turn_id": "turn_1"}]]
    assert "Renamed to Sales of May." in results[0][2]
    assert "archived=true" in server.queries[-1] and "q=sales" in server.queries[-1]
    assert (results[4][1], (tmp_path / "conversation.jsonl").read_bytes()) == ("conv_copy\n", b"{}\n")


async def test_messages_are_searched(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Hi")

    code, out, _ = await everturn.run("search", "north", "--limit", "3")

    asked = json.loads(await server.wait_for("POST", "/search"))
    assert asked == {"query": "north", "limit": 3, "targets": ["user", "assistant", "attachment"]}
    assert code == 0
    assert out.splitlines() == [
        "conv_1  Sales",
        "  Answer  2026-01-02  North sold most.",
        "  You     2026-01-02  Who sold most?",
        "conv_2  Weather",
        "  File    2026-01-03  Wind from north",
    ]


async def test_deleting_asks_first_and_without_a_terminal_needs_a_flag(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    server.scenario.start_turn("Hi")
    conversation_id = server.scenario.conversation.id

    refused = await everturn.run("delete", conversation_id)
    os.write(keyboard[0], b"n\n")
    kept = await everturn.run("delete", conversation_id, stdin=keyboard[1])
    kept_requests = [method for method, *_ in server.requests]
    os.write(keyboard[0], b"y\n")
    asked = await everturn.run("delete", conversation_id, stdin=keyboard[1])
    sure = await everturn.run("delete", conversation_id, "--yes")

    assert [code for code, _, _ in (refused, kept, asked, sure)] == [2, 1, 0, 0]
    assert "--yes" in refused[2]
    assert "with all its messages and files? [y/N]" in kept[2]
    assert "DELETE" not in kept_requests
    assert [method for method, *_ in server.requests].count("DELETE") == 2


async def test_bytes_that_are_not_utf_8_do_not_confirm_a_deletion(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")
    server.scenario.start_turn("Hi")

    os.write(keyboard[0], b"y\xff\n")
    code, _, err = await everturn.run("delete", server.scenario.conversation.id, stdin=keyboard[1])

    assert code == 1
    assert err.endswith(f"Not deleted: {server.scenario.conversation.id}.\n")


async def test_deleting_shows_the_title_without_reading_turns(
    server: "SmallServer", everturn: "Everturn", keyboard: tuple[int, int]
) -> None:
    server.scenario.start_turn("Hi")
    server.scenario.conversation = replace(server.scenario.conversation, title="Sales of May")

    os.write(keyboard[0], b"n\n")
    kept = await everturn.run("delete", server.scenario.conversation.id, stdin=keyboard[1])

    assert 'Delete "Sales of May" with all' in kept[2]
    assert server.sent("/fetch") == []


async def test_an_event_is_sent_with_its_payload(server: "SmallServer", everturn: "Everturn") -> None:
    server.scenario.start_turn("Hi")
    server.is_signal = True

    line = ["signal", "event", "Sent.", "--conversation", "conv_1", "--event-kind", "form", "--payload", '{"n": 1}']
    code, _, _ = await everturn.run(*line, "--record-only")

    body = json.loads(await server.wait_for("POST", "/conv_1/signals"))
    assert code == 0
    assert body["event"] == {"kind": "form", "payload": {"n": 1}, "reactive": False, "iteration_credit": 0}

"""A turn as text that only grows."""

from everturn.events.fold import fold_event
from everturn.events.model import ChatCompaction
from everturn.events.turn_view import build_state
from everturn.events.views import TextView, TurnView
from everturn.timeline.blocks import CompletionBody, ThinkingBody, ToolResultBody
from everturn.timeline.turns import Outcome
from everturn_client.terminal.turn_printer import TurnPrinter
from everturn_testing.events.scenarios import PROJECT, TENANT, Scenario, make_artifact
from everturn_testing.turns.approval_scenarios import ApprovalScenario, Settled


def print_scenario(
    scenario: Scenario, *, show_thinking: bool = True, begin: int = 0, holds_answer: bool = False
) -> list[tuple[str, str]]:
    """Fold the events from the snapshot `begin` on, and print each state."""
    printer = TurnPrinter(
        show_thinking=show_thinking,
        download_command="everturn download",
        answer_command="everturn answer",
        holds_answer=holds_answer,
    )
    state = build_state(scenario.pages[begin], tenant=TENANT, project=PROJECT)
    pieces = printer.render(state.turns[-1])
    for event in scenario.events:
        state = fold_event(state, event)
        pieces += printer.render(state.turns[-1])
    return [(piece.tone, piece.text) for piece in pieces]


def build_scenario() -> Scenario:
    scenario = Scenario()
    turn_id = scenario.start_turn("Draw it")
    scenario.start_round()
    scenario.add(ThinkingBody(text=scenario.stream("thinking", 0, ["Let me ", "see."])))
    call_id = scenario.add_call("exec_tools.run", {"prog_name": "draw"})
    scenario.commit()
    scenario.show_step(call_id)
    scenario.change_plan("p", ["Draw"])
    artifact = make_artifact(turn_id, "chart.png")
    result = ToolResultBody(tool_id="exec_tools.run", status="ok", text="", artifacts=(artifact,), duration_ms=20)
    scenario.add(result, call_id=call_id)
    scenario.commit()
    scenario.show_step(call_id)
    scenario.show_files([artifact])
    scenario.start_round()
    answer = scenario.stream("answer", 0, ["Here ", "it is."])
    scenario.add(CompletionBody(text=answer, followups=("In blue?",)))
    scenario.end_turn(Outcome.COMPLETED)
    return scenario


def test_a_turn_is_printed_as_it_happens() -> None:
    printed = print_scenario(build_scenario())

    assert printed == [
        ("thinking", "Let me "),
        ("thinking", "see."),
        ("thinking", "\n"),
        ("info", "▸ draw …\n"),
        ("info", "Plan:\n  □ 1. Draw\n"),
        ("good", "✓ draw (20 ms)\n"),
        ("answer", "Here "),
        ("answer", "it is."),
        ("answer", "\n"),
        ("info", "Files:\n"),
        ("info", "  chart.png (9 bytes)   everturn download art_chart.png\n"),
        ("info", "You might ask:\n  In blue?\n"),
        ("info", "2 rounds · 12 ms · 22 tokens\n"),
    ]


def test_the_data_of_a_workflow_is_not_printed_and_its_canvas_is_named() -> None:
    shown = [
        TextView(round=1, channel="usage", instance=0, marker="answer", format="json", text="{}"),
        TextView(round=1, channel="report", instance=0, marker="canvas", format="markdown", text="x", artifact="A"),
        TextView(round=1, channel="panel", instance=0, marker="panel", format="markdown", text="Seen."),
    ]
    turn = TurnView(turn_id="turn_1", ordinal=1, status="running", text="Hi", texts=tuple(shown))
    printer = TurnPrinter(show_thinking=True, download_command="", answer_command="")

    assert "".join(piece.text for piece in printer.render(turn)) == "✎ writing A\nSeen."


def test_a_plan_is_printed_again_only_if_it_looks_different() -> None:
    scenario = Scenario()
    scenario.start_turn("Draw it")
    scenario.change_plan("p", ["Draw"])
    scenario.commit()
    [turn] = build_state(scenario.pages[-1], tenant=TENANT, project=PROJECT).turns
    [plan] = turn.plans
    printer = TurnPrinter(show_thinking=True, download_command="everturn download")

    same, other = (plan.model_copy(update=changed) for changed in ({"snapshot_ref": "other"}, {"status": "closed"}))
    printed = [printer.render(turn.model_copy(update={"plans": (each,)})) for each in (plan, same, other)]

    assert [len(pieces) for pieces in printed] == [1, 0, 1]


def build_approval_scenario(state: Settled, reason: str = "") -> tuple[Scenario, str]:
    scenario = ApprovalScenario()
    scenario.start_turn("Send it")
    scenario.start_round()
    call_id = scenario.add_call("mail.send", {"to": "ann"})
    approval_id = scenario.ask(call_id, "mail.send", {"to": "ann"})
    scenario.commit()
    scenario.show_step(call_id)
    scenario.show_question(call_id)
    scenario.settle_question(call_id, state, reason)
    status = "ok" if state == "approved" else "cancelled"
    result = ToolResultBody(tool_id="mail.send", status=status, text="So it is.", duration_ms=20)
    scenario.add(result, call_id=call_id)
    scenario.commit()
    scenario.show_step(call_id)
    scenario.start_round()
    scenario.add(CompletionBody(text=scenario.stream("answer", 0, ["Done."])))
    scenario.end_turn(Outcome.COMPLETED)
    return scenario, approval_id


def test_an_approval_is_printed_with_commands_and_outcome() -> None:
    scenario, approval_id = build_approval_scenario("denied", "Not today.")

    printed = print_scenario(scenario)

    (asked,) = [text for _, text in printed if text.startswith("?")]
    assert asked.startswith('? Allow mail.send? {"to": "ann"}\n')
    assert f"  Allow it: everturn answer {approval_id} approve\n" in asked
    texts = [text for _, text in printed]
    assert (
        texts.index("▸ mail.send …\n")
        < texts.index(asked)
        < texts.index('· mail.send {"to": "ann"} denied: Not today.\n')
    )


def test_a_waiting_turn_prints_its_approval_last() -> None:
    scenario, _ = build_approval_scenario("approved")
    waiting = build_state(scenario.pages[1], tenant=TENANT, project=PROJECT).turns[-1]
    ended = build_state(scenario.pages[-1], tenant=TENANT, project=PROJECT).turns[-1]

    pieces = [
        [piece.text for piece in TurnPrinter(show_thinking=True, download_command="x").render(turn)]
        for turn in (waiting, ended)
    ]

    assert pieces[0][-1].startswith("? Allow mail.send?")
    called = ["▸ mail.send …\n", "✓ mail.send (20 ms)\n"]
    assert pieces[1][:4] == ['· mail.send {"to": "ann"} approved\n', *called, "Done."]


def test_thinking_may_be_left_out() -> None:
    assert "thinking" not in {tone for tone, _ in print_scenario(build_scenario(), show_thinking=False)}


def test_a_snapshot_of_an_ended_turn_is_printed_whole() -> None:
    scenario = build_scenario()

    printed = print_scenario(scenario, begin=-1)

    assert ("answer", "Here it is.") in printed
    assert printed.index(("good", "✓ draw (20 ms)\n")) < printed.index(("answer", "Here it is."))


def test_text_lost_by_a_dead_worker_is_printed_again() -> None:
    scenario = Scenario()
    scenario.start_turn("Hi")
    scenario.start_round()
    scenario.stream("answer", 0, ["I belie"])
    scenario.lose_worker()
    scenario.start_round()
    scenario.add(CompletionBody(text=scenario.stream("answer", 0, ["Hello."])))
    scenario.end_turn(Outcome.COMPLETED)

    printed = print_scenario(scenario)
    to_a_file = print_scenario(scenario, holds_answer=True)

    assert [text for tone, text in to_a_file if tone == "answer"] == ["Hello.", "\n"]
    assert printed[:5] == [
        ("answer", "I belie"),
        ("answer", "\n"),
        ("info", "↺ Uncommitted text was withdrawn; the agent is writing it again.\n"),
        ("answer", "Hello."),
        ("answer", "\n"),
    ]


def test_a_written_file_is_named_without_its_content() -> None:
    scenario = Scenario()
    scenario.start_turn("Write")
    scenario.start_round()
    scenario.stream("canvas", 0, ["# Long", " text"], artifact="files/a.md")
    scenario.stream("timeline_text", 1, ["Shown"], artifact="files/b.md")

    assert print_scenario(scenario) == [("info", "✎ writing files/a.md\n"), ("info", "Shown")]


def test_the_sources_of_an_answer_stand_below_it_with_their_numbers() -> None:
    scenario = Scenario()
    scenario.start_turn("Who says so?")
    scenario.start_round()
    scenario.answer(scenario.stream("answer", 0, ["Two do."]), cited=[2, 5])
    scenario.end_turn(Outcome.COMPLETED)

    printed = print_scenario(scenario)

    assert printed[:3] == [
        ("answer", "Two do."),
        ("answer", "\n"),
        ("info", "Sources:\n  [2] Title 2  https://a.example/2\n  [5] Title 5  https://a.example/5\n"),
    ]


def test_a_compaction_is_printed_on_its_own_line() -> None:
    printer = TurnPrinter(show_thinking=True, download_command="everturn download")
    scenario = Scenario()
    scenario.start_turn("Hi")
    scenario.start_round()
    scenario.stream("answer", 0, ["Half"])
    state = build_state(scenario.pages[0], tenant=TENANT, project=PROJECT)
    for event in scenario.events:
        state = fold_event(state, event)
    printer.render(state.turns[-1])

    begun = printer.render_compaction(ChatCompaction(status="started", reason="soft", before_tokens=70_000))
    done = printer.render_compaction(
        ChatCompaction(status="completed", reason="soft", before_tokens=70_000, after_tokens=9_000)
    )

    assert [(piece.tone, piece.text) for piece in (*begun, *done)] == [
        ("answer", "\n"),
        ("info", "▸ summarizing earlier messages (70,000 tokens) …\n"),
        ("good", "✓ summarized earlier messages (70,000 → 9,000 tokens)\n"),
    ]


def test_a_failure_has_a_reason() -> None:
    scenario = Scenario()
    scenario.start_turn("Hi")
    scenario.end_turn("failed")

    assert ("bad", "The answer failed: The model failed.\n") in print_scenario(scenario)

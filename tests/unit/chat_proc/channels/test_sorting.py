import json

import pytest

from chat_proc.channels.actions import Decision, FanoutRules, Program
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.decision_stream import DecisionStream

RULES = FanoutRules(
    {"look": "exploration", "write": "exploitation", "patch": "exploitation", "plan": "neutral", "run": "exploitation"},
    frozenset({"run"}),
)
BROKEN = "<channel:action>oops</channel:action>"
CODE = "<channel:code>\nprint()\n</channel:code>"
FINAL = '<channel:action>{"action": "complete", "final_answer": "Done."}</channel:action>'


def call(tool_id: str, **params: object) -> str:
    action = {"action": "call_tool", "tool_call": {"tool_id": tool_id, "params": params}}
    return f"<channel:action>{json.dumps(action)}</channel:action>"


def read(reply: str) -> Decision:
    names = {name: name for name in (*RULES.strategies, "none")}
    stream = DecisionStream(names=names, limits=DecisionLimits(code_tools=RULES.code_tools, fanout=RULES))
    stream.feed(reply)
    return stream.finish()[1]


def tools(decision: Decision) -> list[str]:
    return [action.tool_call.tool_id if action.tool_call else action.action for action in decision.actions]


def kinds(decision: Decision) -> list[tuple[str, bool]]:
    return [(problem.kind, problem.fatal) for problem in decision.problems]


@pytest.mark.parametrize(
    ("reply", "kept", "problems"),
    [
        (call("look") + call("look"), ["look", "look"], []),
        (BROKEN + call("look"), ["look"], [("not_json", False)]),
        (call("look") + BROKEN, ["look"], [("not_json", False)]),
        (BROKEN, [], [("not_json", True)]),
        (BROKEN + call("none"), [], [("not_json", True), ("unknown_tool", True)]),
        (call("run") + CODE, ["run"], []),
        (call("run") + CODE + call("plan"), ["run", "plan"], []),
        (call("plan") + call("run") + CODE, ["plan", "run"], []),
        (call("run") + call("plan") + CODE, ["plan"], [("call_without_code", False), ("code_without_call", False)]),
        (call("run") + call("plan"), ["plan"], [("call_without_code", False)]),
        (call("run") + CODE + call("run") + CODE, ["run"], [("second_program", False)]),
        (call("run") + CODE + CODE, [], [("call_without_code", True)]),
        (call("plan") + call("run") + "<channel:code>\nx", ["plan"], [("unclosed_code", False)]),
        (call("look") + CODE + call("plan"), ["look", "plan"], [("code_without_call", False)]),
        (call("plan") + CODE, [], [("code_without_call", True)]),
        (CODE + call("plan") + call("look"), ["plan", "look"], [("code_without_call", False)]),
        (call("plan") + FINAL, ["plan", "complete"], []),
        (call("write", path="a") + call("write", path="./a"), ["write"], [("same_path", False)]),
        (call("patch", path="files/a") + call("write", path="a"), ["patch"], [("same_path", False)]),
        ("Prose. " + call("look") + call("plan"), ["look", "plan"], [("text_outside_channels", False)]),
    ],
)
def test_what_can_run_by_itself_is_kept_and_the_rest_is_named(
    reply: str, kept: list[str], problems: list[tuple[str, bool]]
) -> None:
    decision = read(reply)

    assert tools(decision) == kept
    assert kinds(decision) == problems


@pytest.mark.parametrize("frame", ["@", "<channel:action>@</channel:action>"])
def test_programs_and_paths_of_json_in_another_form_are_checked_too(frame: str) -> None:
    def act(tool_id: str, **params: object) -> str:
        return frame.replace("@", json.dumps({"tool": tool_id, "args": params}))

    same_path = read(act("write", path="a") + act("patch", path="./a"))
    assert (tools(same_path), kinds(same_path)) == (["write"], [("same_path", False)])
    if frame == "@":
        programs = read(act("none") + act("run", code="print()") + act("run", code="print(2)"))
        assert (tools(programs), programs.programs) == (["run"], (Program("print()\n", 0),))
        assert kinds(programs) == [("unknown_tool", False), ("second_program", False)]


def test_a_program_that_writes_what_another_action_writes_is_refused() -> None:
    contract = [{"filepath": "outputs/a.csv", "description": "d"}]

    decision = read(call("write", path="outputs/a.csv") + call("run", contract=contract) + CODE)

    assert tools(decision) == ["write"]
    assert kinds(decision) == [("same_path", False)]


def test_whole_rounds_written_one_after_another_are_several_actions() -> None:
    thinking = "<channel:thinking>Hm.</channel:thinking>"

    decision = read(thinking + call("look") + CODE.replace("print()", "") + thinking + call("plan") + thinking)

    assert tools(decision) == ["look", "plan"]
    assert kinds(decision) == []


def test_actions_mentioned_in_thinking_are_not_read() -> None:
    reply = '<channel:thinking>I could write {"action": "exit"} in an action channel.</channel:thinking>'

    assert tools(read(reply + call("look"))) == ["look"]


def test_a_program_stays_with_its_call_when_actions_before_it_are_refused() -> None:
    decision = read(BROKEN + call("none") + call("run") + CODE)

    assert decision.programs == (Program("print()\n", 0),)
    assert tools(decision) == ["run"]


def test_a_refused_action_is_named_by_its_place_in_the_reply() -> None:
    (problem,) = read(call("look") + call("write", path="a")).problems

    assert problem.action_instance == 1
    assert problem.sentence.startswith("Action 2 was not run.")

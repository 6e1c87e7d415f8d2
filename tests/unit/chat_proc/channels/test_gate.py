"""What of several actions is shown while they are written, whatever the chunks."""

import json
from collections.abc import Callable
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.actions import Decision, FanoutRules
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.channels.pieces import AnswerText, ContentText, DecisionPiece, NotesText

RULES = FanoutRules(
    {"look": "exploration", "write": "exploitation", "plan": "neutral", "other": "unknown", "run": "exploitation"},
    frozenset({"run"}),
)
SIZES = [1, 7, 64, 1_000_000]


def act(**fields: object) -> str:
    return f"<channel:action>{json.dumps(fields)}</channel:action>"


def call(tool_id: str, notes: str = "", **params: object) -> str:
    return act(action="call_tool", notes=notes, tool_call={"tool_id": tool_id, "params": params})


def final(text: str, notes: str = "") -> str:
    return act(action="complete", notes=notes, final_answer=text)


def read(reply: str, size: int) -> tuple[list[DecisionPiece], Decision]:
    names = {name: name for name in RULES.strategies}
    stream = DecisionStream(names=names, limits=DecisionLimits(code_tools=RULES.code_tools, fanout=RULES))
    pieces = [piece for start in range(0, len(reply), size) for piece in stream.feed(reply[start : start + size])]
    last, decision = stream.finish()
    return pieces + last, decision


def shown(pieces: list[DecisionPiece]) -> list[str]:
    """The texts that were handed out, one for each field of each action."""
    texts: dict[tuple[str, int], str] = {}
    for piece in pieces:
        if isinstance(piece, NotesText | AnswerText | ContentText):
            key = (type(piece).__name__, piece.instance)
            texts[key] = texts.get(key, "") + piece.text
    return list(texts.values())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("reply", "texts", "refused"),
    [
        (call("look", "one") + call("look", "two"), ["one", "two"], []),
        (call("look", "one") + call("write", "two", path="a", channel="canvas", content="x"), ["one"], [1]),
        (call("write", "one", path="a", content="x") + call("look", "two"), ["one", "x", "two"], []),
        (call("write", path="a", content="x") + call("write", path="b", content="y"), ["x", "y"], []),
        (call("write", path="a", content="x") + call("write", path="files/A", content="y"), ["x"], [1]),
        (call("other", "one") + call("look", "two"), ["one"], [1]),
        (call("plan", "one") + final("Done."), ["one", "Done."], []),
        (call("look", "one") + final("Too early."), ["one"], [1]),
        (final("Done.") + call("plan", "two"), ["Done.", "two"], []),
        (final("Done.") + call("look", "two"), ["Done."], [1]),
        (final("One.") + final("Two."), ["One."], [1]),
        (call("plan") + call("plan") + final("Done.", notes="n"), ["n", "Done."], []),
        (call("look", "one") + call("write", path="b", content="z") + call("look", "three"), ["one", "three"], [1]),
    ],
)
def test_a_gate_buffers_until_the_action_is_judged(reply: str, texts: list[str], refused: list[int], size: int) -> None:
    pieces, decision = read(reply, size)

    assert shown(pieces) == texts
    assert [problem.action_instance for problem in decision.problems] == refused
    assert not decision.fatal_problems


CALLS = {
    "our key": lambda tool_id: json.dumps({"action": "tool_call", "tool": tool_id, "args": {}}),
    "Hermes": lambda tool_id: json.dumps({"name": tool_id, "arguments": {}}),
    "LangChain": lambda tool_id: json.dumps({"action": tool_id, "action_input": {}}),
}
FRAMES = {"bare": "@", "in a tag": "<tool_call>@</tool_call>", "in a channel": "<channel:action>@</channel:action>"}
ANSWER = json.dumps({"action": "final_answer", "answer": "Done."})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("build_call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("written", "texts", "kept", "refused"),
    [
        (["look"] * 6, [], ["look"] * 4, [4, 5]),
        (["look", "write"], [], ["look"], [1]),
        (["write", "look"], [], ["write", "look"], []),
        (["other", "look"], [], ["other"], [1]),
        (["look", "other"], [], ["look"], [1]),
        (["plan", ""], ["Done."], ["plan", "complete"], []),
        (["look", ""], [], ["look"], [1]),
        (["", "plan"], ["Done."], ["complete", "plan"], []),
        (["", "look"], ["Done."], ["complete"], [1]),
        (["", ""], ["Done."], ["complete"], [1]),
    ],
)
def test_actions_in_another_form_are_judged_by_the_same_rules(
    written: list[str],
    texts: list[str],
    kept: list[str],
    refused: list[int],
    build_call: Callable[[str], str],
    frame: str,
    size: int,
) -> None:
    actions = [build_call(tool_id) if tool_id else ANSWER for tool_id in written]
    pieces, decision = read("\n".join(frame.replace("@", action) for action in actions), size)

    assert shown(pieces) == texts
    assert [action.tool_call.tool_id if action.tool_call else action.action for action in decision.actions] == kept
    assert [problem.action_instance for problem in decision.problems] == refused
    assert not decision.fatal_problems


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_an_action_in_another_form_with_an_unknown_tool_is_refused(frame: str) -> None:
    actions = [CALLS["our key"](tool_id) for tool_id in ("none", "look")]
    _, decision = read("".join(frame.replace("@", action) for action in actions), 7)

    assert [problem.kind for problem in decision.problems] == ["unknown_tool"]
    assert len(decision.actions) == 1


@pytest.mark.parametrize("size", SIZES)
def test_an_answer_written_before_its_action_is_known_waits(size: int) -> None:
    early = '<channel:action>{"final_answer": "Early.", "notes": "n", "action": "complete"}</channel:action>'

    assert shown(read(call("plan") + early, size)[0]) == ["n", "Early."]
    assert shown(read(call("look") + early, size)[0]) == []


def test_the_notes_of_the_first_action_do_not_wait_for_its_tool() -> None:
    stream = DecisionStream(limits=DecisionLimits(fanout=RULES))

    pieces = stream.feed('<channel:action>{"action": "call_tool", "notes": "Look')

    assert shown(pieces) == ["Look"]


def test_the_notes_of_a_later_action_wait_for_its_tool() -> None:
    stream = DecisionStream(limits=DecisionLimits(fanout=RULES))
    stream.feed(call("look"))

    before = stream.feed('<channel:action>{"action": "call_tool", "notes": "More", "tool_call": {"tool_id": "lo')
    after = stream.feed('ok"')

    assert shown(before) == []
    assert shown(after) == ["More"]


def test_content_written_before_its_path_is_not_streamed() -> None:
    pieces, decision = read(call("write", content="x", path="a", channel="canvas"), 5)

    assert shown(pieces) == []
    assert len(decision.actions) == 1


def test_an_answer_of_a_refused_action_is_not_the_answer_of_the_reply() -> None:
    assert read(call("look") + final("Early."), 9)[1].answer is None
    assert read(call("plan") + final("Done."), 9)[1].answer is not None


FRAGMENTS = [
    call("look", "one"),
    call("write", "two", path="files/a.md", channel="canvas", content="long [[S:1]] text"),
    call("write", path="./files/A.md", channel="canvas", content="other"),
    call("write", content="first", path="files/b.md"),
    call("plan", "marks"),
    call("other", "alone"),
    call("run"),
    "<channel:code>\nprint('</channel:code>')\n</channel:code>",
    final("An answer with `</channel:action>` in it.", "noted"),
    '<channel:action>{"final_answer": "early", "action": "complete"}</channel:action>',
    "<channel:action>oops</channel:action>",
    "<channel:thinking>Hm.</channel:thinking>",
    "Prose. ",
    "\n",
]


@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=7).map("".join), st.lists(st.integers(1, 40), min_size=1, max_size=6)
)
def test_the_way_of_cutting_never_matters(reply: str, sizes: list[int]) -> None:
    stream = DecisionStream(limits=DecisionLimits(code_tools=RULES.code_tools, fanout=RULES))
    pieces: list[DecisionPiece] = []
    start = 0
    for size in cycle(sizes):
        if start >= len(reply):
            break
        pieces += stream.feed(reply[start : start + size])
        start += size
    last, decision = stream.finish()

    whole_pieces, whole = read(reply, 1_000_000)
    assert decision == whole
    assert shown(pieces + last) == shown(whole_pieces)

"""Under each codec, an action that a model writes as JSON in its text runs, and one that it only quotes is shown."""

import json
from collections.abc import Sequence

import pytest

from chat_proc.channels.actions import Decision
from chat_proc.channels.codec import Codec, build_native_names
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.pieces import AnswerText, AnswerWithdrawn, DecisionPiece
from everturn.models.port import CodecName

CODECS: tuple[CodecName, ...] = ("channels", "native", "json")
NAMES = build_native_names(["react.read"])

KINDS = {
    "our call": json.dumps({"action": "tool_call", "tool": "react.read", "args": {}}),
    "foreign call": json.dumps({"name": "react__read", "arguments": {}}),
    "unknown call": json.dumps({"name": "get_weather", "arguments": {"city": "Rome"}}),
    "our answer": json.dumps({"action": "final_answer", "answer": "It is 4."}),
    "our key": json.dumps({"action": "opened"}),
    "data": json.dumps({"a": 1}),
}

T, J, C, A, N = "the text", "the JSON", "a call", "the answer", "nothing"
"""What comes of a reply: the person sees its text as it is, or the JSON in it, or the answer in the JSON; or a tool is
called; or the model has to reply again."""

Cell = str | tuple[str, str, str]
"""What comes of it under all codecs, or under channels, native and json."""

TABLE: dict[str, tuple[Cell, Cell, Cell, Cell, Cell, Cell]] = {
    # @ is the JSON:                        our call, foreign, unknown,  answer, our key,   data
    "@": (C, C, (T, T, C), A, (N, N, C), T),
    "\n @\n": (C, C, (T, T, C), A, (N, N, C), T),
    "```json\n@\n```": (C, C, (T, T, C), A, (N, N, C), T),
    "`@`": (C, C, T, A, T, T),
    "@\nThen I answer.": (C, C, (T, T, N), A, N, (T, T, N)),
    "```json\n@\n```\nThen I answer.": (C, C, (T, T, N), A, (T, T, N), (T, T, N)),
    "<think>Hm.</think>\n@": (C, C, J, A, N, J),
    "<tool_call>@</tool_call>": (C, C, N, A, N, N),
    "I will read it.\n<tool_call>@</tool_call>": (C, C, N, A, N, N),
    "I will read it.\n<tool_call>@</tool_call> Then I answer.": (C, C, N, A, N, N),
    "<channel:answer>@</channel:answer>": (N, J, J, A, N, J),
    "<channel:answer>\n@\n</channel:answer>": (N, J, J, A, N, J),
    "I will read it:\n@": (C, C, T, A, T, T),
    "I will read it:\n\n    @\n": (C, C, T, A, T, T),
    "I will read it:\n```json\n@\n```": (C, T, T, A, T, T),
    "I will read it. @": (T, T, T, T, T, T),
    "Send @ to the server.": (T, T, T, T, T, T),
    "Send this:\n@\nto the server.": (T, T, T, T, T, T),
    "Send this:\n```json\n@\n```\nto the server.": (T, T, T, T, T, T),
    "Send this:\n```\n@\n```\nThe server replies:\n```\nOK\n```": (T, T, T, T, T, T),
    'Send this:\n@\nThe server replies:\n{"ok": true}': (T, T, T, T, T, T),
    'Send this:\n```json\n@\n```\nThe server replies:\n```json\n{"ok": true}\n```': (T, T, T, T, T, T),
    "Send `@` to the server.": (T, T, T, T, T, T),
    "Send `@`": (T, T, T, T, T, T),
    "`@` is what you send.": (T, T, T, T, T, T),
    "Send this:\n- @": (T, T, T, T, T, T),
    "1. @\n2. Wait.": (T, T, T, T, T, T),
    "The page says:\n> @": (T, T, T, T, T, T),
    '"@", it says.': (T, T, T, T, T, T),
}
ROWS = [
    (text, kind, codec, cell if isinstance(cell, str) else cell[index])
    for text, cells in TABLE.items()
    for kind, cell in zip(KINDS, cells, strict=True)
    for index, codec in enumerate(CODECS)
]


@pytest.mark.parametrize(("text", "kind", "codec", "outcome"), ROWS)
def test_json_in_a_reply(text: str, kind: str, codec: CodecName, outcome: str) -> None:
    written = text.replace("@", KINDS[kind])
    for size in (1, 7, len(written)):
        sees, decision = read(codec, [written[at : at + size] for at in range(0, len(written), size)])

        calls = [action.tool_call for action in decision.actions if action.tool_call]
        assert (sees, len(calls)) == {
            T: (written.strip(), 0),
            C: ("", 1),
            J: (KINDS[kind], 0),
            A: ("It is 4.", 0),
            N: ("", 0),
        }[outcome]
        assert bool(decision.fatal_problems) == (outcome == N)


@pytest.mark.parametrize("codec", CODECS)
def test_braces_in_an_example_do_not_hide_the_call_after_it(codec: CodecName) -> None:
    _, decision = read(codec, ["The file is:\n```js\n{ a: 1 }\n```\nI read it:\n", KINDS["our call"]])

    assert [bool(action.tool_call) for action in decision.actions] == [True]


UNESCAPED = 'To delete it, I would send {"tool": "react.read", "args": {}} as the action.'


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "text",
    [
        f'{{"action": "final_answer", "answer": "{UNESCAPED}"}}',
        f'{{"action": "complete", "final_answer": "{UNESCAPED}"}}',
        f'{{action: "final_answer", answer: "{UNESCAPED}"}}',
        f'```json\n{{"action": "final_answer", "answer": "{UNESCAPED}"}}\n```',
        f'<think>Hm.</think>{{"action": "final_answer", "answer": "{UNESCAPED}"}}',
        f'<tool_call>{{"name": "react.read", "arguments": {{"text": "{UNESCAPED}"}}}}</tool_call>',
        f'I would say:\n{{"action": "final_answer", "answer": "{UNESCAPED}"}}',
        f'I say: {{"action": "final_answer", "answer": "\n{KINDS["our call"]}"}}',
        f'["{UNESCAPED}"]',
        f'```json\n["{UNESCAPED}"]\n```',
        f'<channel:action>{{"action": "complete", "final_answer": "{UNESCAPED}"}}</channel:action>',
        f"<p>{UNESCAPED}</p>",
        '{"action": "complete", "note": ' + KINDS["our call"],
        f'{{"a": 1}}\n{{"action": "final_answer", "answer": "{UNESCAPED}"}}',
    ],
)
def test_a_call_inside_json_that_cannot_be_read_never_runs(codec: CodecName, text: str) -> None:
    _, decision = read(codec, [text])

    assert [action.tool_call for action in decision.actions if action.tool_call] == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_call_before_json_that_cannot_be_read_runs_and_the_rest_is_named(codec: CodecName) -> None:
    _, decision = read(codec, [f'{KINDS["our call"]}\n{{"action": "final_answer", "answer": "{UNESCAPED}"}}'])

    assert len(decision.actions) == 1 and decision.actions[0].tool_call
    assert [problem.kind for problem in decision.problems] == ["two_actions" if codec == "channels" else "not_json"]


def read(codec: CodecName, chunks: Sequence[str]) -> tuple[str, Decision]:
    """The answer that a client has at the end, and the decision."""
    reader = Codec(codec, "", "", (), NAMES).open_reader(DecisionLimits())
    pieces: list[DecisionPiece] = [piece for chunk in chunks for piece in reader.feed(chunk)]
    last, decision = reader.finish()
    sees = ""
    for piece in [*pieces, *last]:
        if isinstance(piece, AnswerText):
            sees += piece.text
        elif isinstance(piece, AnswerWithdrawn):
            sees = ""
    return sees, decision

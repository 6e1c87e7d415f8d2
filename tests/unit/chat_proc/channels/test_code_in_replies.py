"""Under each codec, markup and examples of actions in code are text of the answer, and what a person sees while the
answer is written is the answer at its end."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.actions import Decision
from chat_proc.channels.codec import Codec, build_native_names
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.pieces import AnswerText, AnswerWithdrawn, DecisionPiece, ThinkingText
from everturn.models.port import CodecName
from everturn.timeline.sources import Source

CODECS: tuple[CodecName, ...] = ("channels", "native", "json")
NAMES = build_native_names(["react.read"])
EXAMPLE = '{"action": "tool_call", "tool": "react.read", "args": {...}}'
CALL = '{"action": "tool_call", "tool": "react.read", "args": {}}'


def read(codec: CodecName, chunks: list[str], *, closing: bool = False) -> tuple[list[DecisionPiece], Decision]:
    reader = Codec(codec, "", "", (), NAMES).open_reader(DecisionLimits(), closing=closing)
    pieces = [piece for chunk in chunks for piece in reader.feed(chunk)]
    last, decision = reader.finish()
    return [*pieces, *last], decision


def sees(pieces: list[DecisionPiece]) -> str:
    """The answer that a client has at the end."""
    text = ""
    for piece in pieces:
        if isinstance(piece, AnswerText):
            text += piece.text
        elif isinstance(piece, AnswerWithdrawn):
            text = ""
    return text


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "text",
    [
        "Our models write `<action>` for this.",
        "Our models write `an <action> tag` or ``a `<tool_call>` `` for this.",
        "The answer goes into `<channel:answer>`.",
        "The answer goes into `<channel:answer>`",
        "Write `the <channel:answer> tag` or ``a `<channel:action>` `` for this.",
        "`<channel:thinking>` comes first, then `<channel:answer>`.",
        "The ``answer'' goes into `<channel:answer>`.\nThat is all.",
        "A lone ``` is no code, but `<channel:action>` is.",
        "The answer goes into `<channel:answer>It is 4.</channel:answer>`.",
        "ChatML ends a message with `<|im_end|>`.",
        "`<|im_end|>` ends a message in ChatML.",
        "The reasoning is in `<think>` and `</think>`, then comes the rest.",
        f"A call looks like this:\n```json\n{EXAMPLE}\n```\nThe tool then runs.",
        f"A call looks like this:\n~~~\n{EXAMPLE}\n~~~\nThe tool then runs.",
        f"A call looks like this:\r\n```json\r\n{EXAMPLE}\r\n```\r\nThe tool then runs.",
        f"A call looks like this:\n````md\n```json\n{EXAMPLE}\n```\n````\nThe tool then runs.",
        "- The tag:\n  ```xml\n  <tool_call>\n  ```\n- The end.",
        "```xml\n<tool_call>\n```\nand\n```xml\n</tool_call>\n```",
        "It is:\n```xml\n<tool_call>",
    ],
)
def test_markup_in_code_is_text_of_the_answer(codec: CodecName, text: str) -> None:
    for size in (1, 7, len(text)):
        pieces, decision = read(codec, cut(text, size))

        assert sees(pieces) == text
        assert not any(isinstance(piece, AnswerWithdrawn) for piece in pieces)
        assert decision.fatal_problems == () and decision.answer is not None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 5, 1_000])
@pytest.mark.parametrize("begin", ["", "In doubt:\n```\n" + EXAMPLE + "\n```\n"])
def test_citations_in_code_are_text(codec: CodecName, size: int, begin: str) -> None:
    text = f"{begin}It is so [[S:1]], and `[[S:1]]` cites it:\n```\n[[S:1]]\n```\nThat is all [[S:1]]."
    reader = Codec(codec, "", "", (), NAMES).open_reader(DecisionLimits(), [Source(1, "One", "https://one.example")])
    pieces = [piece for chunk in cut(text, size) for piece in reader.feed(chunk)]
    last, decision = reader.finish()

    link = "[One](https://one.example)"
    shown = f"{begin}It is so {link}, and `[[S:1]]` cites it:\n```\n[[S:1]]\n```\nThat is all {link}."
    assert sees([*pieces, *last]) == shown
    assert decision.answer is not None and decision.answer.shown == shown


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 5, 1_000])
@pytest.mark.parametrize("begin", ["", "<channel:thinking>hm</channel:thinking>\n"])
@pytest.mark.parametrize(
    "text",
    [
        "An answer ends with `</channel:answer>`.",
        "An answer ends with ``a </channel:answer>`` or so.",
        "The tags are `<channel:answer>` and `</channel:answer>`.",
        "It ends with `</channel:answer>`. A call is `<channel:action>{}</channel:action>` then the tool runs.",
        "It ends with\n```\n</channel:answer>\n```\nA call is `<channel:action>{}</channel:action>`, which runs.",
        "It ends with\n```\n</channel:answer>\n```\nA call is\n```\n<channel:action>\n```\nwhich runs.",
        "End the answer, then call:\n```\n</channel:answer>\n<channel:action>{}</channel:action>\n```\nand it runs.",
        "Tags: `...</channel:answer><channel:action>{}</channel:action>` and so on.",
    ],
)
def test_a_closing_tag_in_code_is_text(codec: CodecName, size: int, begin: str, text: str) -> None:
    pieces, decision = read(codec, cut(f"{begin}<channel:answer>{text}</channel:answer>", size))

    assert sees(pieces) == text
    assert decision.fatal_problems == () and not any(action.tool_call for action in decision.actions)


LONG_CALL = CALL.replace("{}}", '{"paths": ["' + "x" * 400 + '"]}}')


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "example", [LONG_CALL, f"<tool_call>{LONG_CALL}</tool_call>", f"<channel:action>{LONG_CALL}</channel:action>"]
)
def test_a_long_call_in_inline_code_is_an_example(codec: CodecName, example: str) -> None:
    text = f"Models think in <think> tags. A call is `{example}` and the tool runs."
    for size in (7, 10_000):
        _, decision = read(codec, cut(text, size))

        assert not any(action.tool_call for action in decision.actions)


@pytest.mark.parametrize("codec", ["native", "json"])
def test_backticks_in_strings_hide_no_call(codec: CodecName) -> None:
    first = CALL.replace("{}}", '{"paths": ["the ` key"]}}')

    _, decision = read(codec, [f"[{first}, {first}]"])

    assert [bool(action.tool_call) for action in decision.actions] == [True, True]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "after",
    [
        "\n<b>Then</b> it runs.",
        "\n\n```json\n{}\n```\nThat is all.",
        "\n`x` is the result.",
        "\n[The manual](m) says more.",
    ],
)
def test_a_fence_before_other_prose_is_an_example(codec: CodecName, after: str) -> None:
    _, decision = read(codec, [f"Models think in <think> tags. A call:\n```json\n{CALL}\n```{after}"])

    assert not any(action.tool_call for action in decision.actions)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("fence", ["```json", "~~~"])
@pytest.mark.parametrize("example", [CALL, f"<tool_call>{CALL}</tool_call>"])
def test_a_tag_in_the_prose_does_not_make_an_example_count(codec: CodecName, fence: str, example: str) -> None:
    end = fence[:3]
    _, decision = read(
        codec, [f"Models think in <think> tags. A call:\n\n{fence}\n{example}\n{end}\n\nThen the tool runs."]
    )

    assert not any(action.tool_call for action in decision.actions)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("fence", ["```", "~~~"])
@pytest.mark.parametrize("after", ["", "\nI wait for the result."])
def test_a_call_in_the_fence_that_begins_a_reply_counts(codec: CodecName, fence: str, after: str) -> None:
    _, decision = read(codec, [f"{fence}json\n{CALL}\n{fence}{after}"])

    assert [bool(action.tool_call) for action in decision.actions] == [True]


CHANNEL_CALL = '<channel:action>{"action": "call_tool", "tool_call": {"tool_id": "react.read", "params": {}}}'


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "begin, end", [("", ""), ("<channel:thinking>t</channel:thinking><channel:answer>", "</channel:answer>")]
)
@pytest.mark.parametrize(
    "text",
    [
        f"Write it like this:\n```\n{CHANNEL_CALL}</channel:action>\n```\nThe tool then runs.",
        f"Write it like this:\n```\n{CHANNEL_CALL}\n```\nThe tool then runs.",
        "A call begins like this:\n~~~json\n<channel:action>\n~~~\nThe tool then runs.",
        "A call begins like this:\r\n```\r\n<channel:action>\r\n```\r\nThe tool then runs.",
        "- An answer:\n  ```\n  <channel:answer>It is 4.</channel:answer>\n  ```\n- That is all.",
        "An answer begins:\n```\n<channel:answer>\n```\nThat is all.",
        f"- Like this: ```xml\n{CHANNEL_CALL}</channel:action>\n```\nThe tool then runs.",
        f"I use ```json\nonly in examples:\n```xml\n{CHANNEL_CALL}</channel:action>\n```\nThe tool then runs.",
        f"Do this:\n- [ ] ```xml\n{CHANNEL_CALL}</channel:action>\n```\nThe tool then runs.",
        "Both:\n```\n<channel:answer>\n```\nand\n```\n<channel:thinking>a</channel:thinking>\n```\nend.",
    ],
)
def test_a_channel_in_a_fence_before_other_text_is_an_example(
    codec: CodecName, text: str, begin: str, end: str
) -> None:
    for size in (1, 7, len(text) + 100):
        pieces, decision = read(codec, cut(f"{begin}{text}{end}", size))

        assert not any(action.tool_call for action in decision.actions) and decision.fatal_problems == ()
        assert sees(pieces) == text


@pytest.mark.parametrize(
    "reply",
    [
        f"```xml\n<channel:thinking>t</channel:thinking>{CHANNEL_CALL}</channel:action>\n```",
        f"Here is my reply:\n```xml\n<channel:thinking>t</channel:thinking>{CHANNEL_CALL}</channel:action>\n```\n",
        f"Here is my reply:\n```xml\n{CHANNEL_CALL}</channel:action>",
        f"Like this:\n```\n<channel:answer>\n```\n{CHANNEL_CALL}</channel:action>",
        f"I will use the tool`{CHANNEL_CALL}</channel:action>",
        f"`{CHANNEL_CALL}</channel:action>`",
        f"```{CHANNEL_CALL}</channel:action>```\n",
        f"```xml {CHANNEL_CALL}</channel:action>\n```\n",
        f"The tag is `<channel:answer>`{CHANNEL_CALL}</channel:action>",
        f"I use `foo`{CHANNEL_CALL}</channel:action> and `bar`.",
        f"<channel:thinking>A lone `<channel:answer> tag</channel:thinking>{CHANNEL_CALL}</channel:action>",
        f"I use`\n{CHANNEL_CALL}</channel:action>",
        f"<channel:thinking>Not closed:\n```\nx = 1</channel:thinking>{CHANNEL_CALL}</channel:action>",
        f"<channel:thinking>As in\n```\n<channel:action>\n</channel:thinking>{CHANNEL_CALL}</channel:action>",
        f"<channel:thinking>A lone `x</channel:thinking>{CHANNEL_CALL}</channel:action> `",
        f"<channel:thinking>A lone `</channel:thinking>{CHANNEL_CALL}</channel:action> `",
        f"I reply in ```json\nas asked.\n{CHANNEL_CALL}</channel:action>",
        f"<channel:thinking>I reply in ```json\nas asked.</channel:thinking>\n{CHANNEL_CALL}</channel:action>",
        f"I run: ```py\nx\n```\n{CHANNEL_CALL}</channel:action>",
        f"<channel:thinking>Plan:\n```\nx\n</channel:thinking>\nSo:\n```\ny\n```\n{CHANNEL_CALL}</channel:action>",
    ],
)
def test_a_channel_in_a_fence_that_nothing_follows_is_meant(reply: str) -> None:
    for size in (1, 7, len(reply)):
        _, decision = read("channels", cut(reply, size))

        assert [action.tool_call.tool_id for action in decision.actions if action.tool_call] == ["react.read"]
        assert decision.fatal_problems == ()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "reply",
    [
        f"```\n<channel:thinking>t</channel:thinking>\n```\nWrite `{CHANNEL_CALL}</channel:action>` to read.",
        f"<think>As in\n```\n</think>{CHANNEL_CALL}</channel:action>\n```\nSo.</think>\nThat is all.",
        f"<think>As in `a </think>{CHANNEL_CALL}</channel:action>`.</think>\nThat is all.",
    ],
)
def test_what_was_thought_before_does_not_make_an_example_count(codec: CodecName, reply: str) -> None:
    for size in (1, 7, len(reply)):
        _, decision = read(codec, cut(reply, size))

        assert not any(action.tool_call for action in decision.actions) and decision.answer is not None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("text", [f"I read it:\n```json\n{EXAMPLE}\n```", f"I read it:\n```json\n{EXAMPLE}"])
def test_an_unreadable_action_in_the_last_fence_is_no_example(codec: CodecName, text: str) -> None:
    pieces, decision = read(codec, cut(text, 7))

    assert sees(pieces) == "" and decision.fatal_problems


@pytest.mark.parametrize("codec", CODECS)
def test_an_action_in_a_fence_is_not_shown_before_it_is_known_to_be_an_example(codec: CodecName) -> None:
    pieces, decision = read(codec, cut(f"I will read the file:\n```json\n{CALL}\n```", 5))

    assert decision.actions[0].tool_call
    assert not any("tool_call" in piece.text for piece in pieces if isinstance(piece, AnswerText))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("text", ["Write <tool_call> here.", "<tool_call> begins a call.", "It ends with <|im_end|>"])
def test_an_answer_channel_is_not_refused_for_its_markup(codec: CodecName, text: str) -> None:
    pieces, decision = read(codec, cut(f"<channel:answer>{text}</channel:answer>", 5))

    assert sees(pieces) == text
    assert decision.fatal_problems == ()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("begin", ["", "```json\n", "<tool_call>"])
def test_text_before_a_call_is_thinking(codec: CodecName, begin: str) -> None:
    pieces, decision = read(codec, cut(f"I will read it first.\n{begin}{CALL}", 7))

    assert [piece.text for piece in pieces if isinstance(piece, ThinkingText)] == ["I will read it first."]
    assert (decision.beside, sees(pieces)) == ("I will read it first.", "")


@pytest.mark.parametrize("codec", CODECS)
def test_an_answer_channel_beside_a_call_is_dropped_and_named(codec: CodecName) -> None:
    action = '{"action": "call_tool", "tool_call": {"tool_id": "react.read", "params": {}}}'
    reply = f"<channel:answer>It is 4.</channel:answer><channel:action>{action}</channel:action>"

    pieces, decision = read(codec, cut(reply, 7))

    assert sees(pieces) == "" and decision.actions[0].tool_call
    assert [problem.kind for problem in decision.problems] == ["answer_with_call"]


@pytest.mark.parametrize("codec", ["native", "json"])
@pytest.mark.parametrize("begin", ["", "```json\n", "<tool_call>"])
def test_text_before_a_call_is_the_answer_where_calls_are_ignored(codec: CodecName, begin: str) -> None:
    pieces, decision = read(codec, cut(f"The sum of both is 4.\n{begin}{CALL}", 7), closing=True)

    assert sees(pieces) == "The sum of both is 4."
    assert decision.answer is not None and decision.fatal_problems == ()


@pytest.mark.parametrize("codec", ["native", "json"])
@pytest.mark.parametrize(
    "text",
    [
        "In React, write <function name> or <action>click</action> in JSX.",
        f"Models think in <think> tags. A call:\n\n```json\n{CALL}\n```\n\nThen the tool runs.",
    ],
)
def test_markup_inside_a_line_is_text_where_calls_are_ignored(codec: CodecName, text: str) -> None:
    pieces, decision = read(codec, cut(text, 7), closing=True)

    assert sees(pieces) == text
    assert decision.fatal_problems == ()


@pytest.mark.parametrize("codec", ["native", "json"])
def test_a_call_that_is_not_json_is_no_answer_where_calls_are_ignored(codec: CodecName) -> None:
    call = '<invoke name="react.read">\n<parameter name="paths">a</parameter>\n</invoke>'

    pieces, decision = read(codec, cut(f"I read it.\n{call}", 7), closing=True)

    assert sees(pieces) == "" and decision.fatal_problems


def test_an_answer_that_was_shown_is_kept_where_calls_are_ignored() -> None:
    reply = '{"action": "final_answer", "answer": "It is 4."}</think> <tool_call>' + CALL + "</tool_call>"

    pieces, decision = read("json", cut(reply, 7), closing=True)

    assert sees(pieces) == "It is 4."
    assert decision.answer is not None and decision.fatal_problems == ()


def test_an_answer_in_another_form_is_withdrawn_once() -> None:
    reply = '<channel:action>{"action": "complete", "final_answer": "Done."}</channel:action>'

    pieces, _ = read("native", cut(f"I looked at the file. {reply}", 7))

    assert sum(isinstance(piece, AnswerWithdrawn) for piece in pieces) == 1


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("said", ["Calling `", "The price is 5` and then "])
def test_a_backtick_without_a_partner_hides_no_call(codec: CodecName, said: str) -> None:
    _, decision = read(codec, cut(f"{said}<tool_call>{CALL}</tool_call>", 7))

    assert [bool(action.tool_call) for action in decision.actions] == [True]


@pytest.mark.parametrize(
    "reply", ["{}", '{"reasoning": "I should look it up."}', '{"args": {"paths": []}, "reasoning": "r"}']
)
def test_an_unfinished_action_is_no_answer_in_json(reply: str) -> None:
    pieces, decision = read("json", cut(reply, 5))

    assert sees(pieces) == "" and decision.fatal_problems


PARTS = (
    *("The answer ", "is 4.", " ", "\n", "\r\n", "`", "``", "```", "\n```\n", "```json\n", "~~~", "\n~~~\n", "````\n"),
    *("<", "<tool_call>", "</think>", "<think>", "<|im_end|>", "<action>", "<channel:answer>", "</channel:answer>"),
    *("<channel:thinking>", "<channel:action>", "{", '{"a": 1}', f"\n{EXAMPLE}", EXAMPLE, f"\n{CALL}", "- ", "> "),
)


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(st.sampled_from(PARTS), max_size=10).map("".join), st.data())
def test_what_a_person_sees_is_the_answer(codec: CodecName, reply: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(reply)), max_size=12)))
    pieces, decision = read(codec, [reply[a:b] for a, b in pairwise([0, *cuts, len(reply)])])

    whole, again = read(codec, [reply])

    assert sees(pieces) == sees(whole) == (decision.answer.shown if decision.answer else "")
    # How much of a reply was read before it was refused depends on its pieces.
    assert replace(decision, raw="") == replace(again, raw="")

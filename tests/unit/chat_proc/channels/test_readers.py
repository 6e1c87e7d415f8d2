"""What the readers of all codecs have in common."""

import json
from collections.abc import Callable

import pytest
from helpers.linear_cost import check_linear, repeat

from chat_proc.channels.actions import Decision
from chat_proc.channels.codec import Codec
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.pieces import AnswerText
from everturn.models.port import CodecName, FinishReason
from everturn.timeline.sources import Source

CODECS: tuple[CodecName, ...] = ("channels", "native", "json")
SOURCES = (Source(1, "One", "https://one.example"),)


def read(
    codec: CodecName, text: str, reason: FinishReason = "stop", *, interrupted: bool = False, max_chars: int = 400_000
) -> tuple[str, Decision]:
    """The answer as it is shown, and the decision."""
    reader = Codec(codec, "", "").open_reader(DecisionLimits(max_reply_chars=max_chars), SOURCES)
    pieces = [piece for char in text for piece in reader.feed(char)]
    last, decision = reader.finish(reason, interrupted=interrupted)
    return "".join(piece.text for piece in [*pieces, *last] if isinstance(piece, AnswerText)), decision


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "text",
    [
        "In Haskell, a <|> b tries a first, and then b.",
        "In Elm you write f <| x for f(x).",
        "It prints <function f at 0x7f00>, the function itself.",
        'An intent filter has an element <action android:name="android.intent.action.MAIN" />.',
    ],
)
def test_operators_and_tags_of_other_languages_are_text(codec: CodecName, text: str) -> None:
    shown, decision = read(codec, text)

    assert shown == text
    assert decision.problems == ()


@pytest.mark.parametrize("codec", CODECS)
def test_characters_are_bounded_and_can_be_stored(codec: CodecName) -> None:
    shown, decision = read(codec, "It is 4.\x00 " + "la " * 100, max_chars=50)

    assert len(decision.raw) == 50 and decision.raw.startswith("It is 4.\ufffd la")
    assert decision.answer is not None and decision.answer.shown == shown
    assert decision.cut_reason == "size_limit"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("text", "reason", "kind", "sentence"),
    [
        ("", "stop", "empty_reply", "The reply was empty."),
        ("", "length", "cut_by_length", "The reply was cut off at the token limit for one reply."),
        ("<tool_call>", "length", "cut_by_length", "The reply was cut off at the token limit for one reply."),
        ("<tool_call>" * 9, "stop", "reply_too_long", "The reply was cut off after 50 characters."),
        ("", "refusal", "refused", "Your reply was a refusal, or a content filter blocked it."),
        ("", "content_filter", "refused", "Your reply was a refusal, or a content filter blocked it."),
    ],
)
def test_a_reply_that_has_nothing_usable_is_explained(
    codec: CodecName, text: str, reason: FinishReason, kind: str, sentence: str
) -> None:
    _, decision = read(codec, text, reason, max_chars=50)

    first = decision.fatal_problems[0]
    assert first.kind == kind and first.sentence.startswith(sentence)
    assert (decision.actions, decision.answer) == ((), None)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "text",
    [
        "See [[S:1]]",
        '{"answer": "See [[S:1]]"}',
        '{"action": "final_answer", "answer": "See [[S:1]]"}',
        '{"answer": "See [[S:1]]", "action": "final_answer"}',
        'So:\n{"action": "complete", "final_answer": "See [[S:1]]"}',
        "<channel:answer>See [[S:1]]</channel:answer>",
        '<channel:action>{"final_answer": "See [[S:1]]", "action": "exit"}</channel:action>',
    ],
)
def test_an_answer_is_shown_with_its_citations_in_any_form(codec: CodecName, text: str) -> None:
    shown, decision = read(codec, text)

    assert shown.endswith("See [One](https://one.example)")
    assert decision.answer is not None
    assert (decision.answer.raw, decision.answer.used_sids) == ("See [[S:1]]", (1,))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rest", ["}", " That is it.", ' {"action": "exit"}'])
def test_an_answer_in_a_channel_counts_whatever_follows_it(codec: CodecName, rest: str) -> None:
    text = f'<channel:action>{{"action": "complete", "final_answer": "It is 4."}}{rest}</channel:action>'
    shown, decision = read(codec, text)

    assert shown == "It is 4." and decision.answer is not None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("text", ["It is 4.", json.dumps({"action": "final_answer", "answer": "It is 4."})])
def test_an_answer_that_can_go_on_is_cut_with_its_reply(codec: CodecName, text: str) -> None:
    _, cut = read(codec, text, "length")
    _, interrupted = read(codec, text, interrupted=True)

    goes_on = not text.startswith("{")
    assert cut.cut_reason == ("length" if goes_on else None)
    assert interrupted.cut_reason == ("incomplete" if goes_on else None)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "build",
    [
        repeat(" "),
        repeat(" ", before="The answer is this.", after="x"),
        repeat("`"),
        repeat("{ ", before="The answer is this. "),
        repeat("<"),
        repeat("</think>"),
        repeat('{"a": '),
        repeat('\n{"action": "tool_call" ', before="The answer is this."),
        repeat("```json\n"),
        repeat(" ", before="```json\n"),
        repeat("\n", before="<think>The answer is this."),
        repeat(" ", before='{"action": "final_answer", "answer": "The answer is this.'),
        repeat('{"action": "tool_call", "tool": "react.read", "args": {}}\n'),
        repeat('{"a": 1}', before="<tool_call>"),
    ],
)
def test_a_reply_is_read_in_linear_time(codec: CodecName, build: Callable[[int], str]) -> None:
    check_linear(lambda text: read(codec, text), build)

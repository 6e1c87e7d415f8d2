import json
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chat_proc.channels.parser import (
    ChannelClosed,
    ChannelOpened,
    ChannelParser,
    ChannelSyntax,
    ChannelText,
    OutsideText,
    Piece,
    TagTable,
)

TAGS = TagTable(
    (
        ChannelSyntax("thinking"),
        ChannelSyntax("action", "json", aliases=("ReactDecisionOutV2",)),
        ChannelSyntax("code", "code"),
        ChannelSyntax("summary"),
        ChannelSyntax("usage", "json"),
    )
)

TRICKY_REPLIES = [
    "<channel:thinking>hm</channel:thinking><channel:action>{}</channel:action>",
    "<channel:thinking>it`s one ``` backtick</channel:thinking>\n<channel:action>{}</channel:action>",
    '<channel:action>{"a": "</channel:action><channel:code>", "b": [1, {"c": "\\"}"}]}</channel:action>',
    '<channel:action>{"a": "x\n</channel:action>\n<channel:code>print()\n</channel:code>',
    '<channel:action>{"a": 1\n</channel:action> tail <channel:summary>s</channel:summary>',
    '<channel:action>{"a": "l1\n</channel:action>\nl2"}</channel:action>',
    '<channel:action>{"a": [\n<channel:action>{}</channel:action>',
    "<channel:code>print(1)</channel:code><channel:summary>s</channel:summary>",
    "<channel:code>print(1)</channel:code>\n\n<channel:summary>s</channel:summary>",
    "<channel:code>\ns = '</channel:code>'\nt = '<channel:action>'\n</channel:code>\n<channel:thinking>t",
    "<channel:code>a </channel:code> b </channel:code> c\n</channel:thinking>\nd",
    "<channel:thinking>a<channel:action>{}<channel:code>x\n<channel:summary>y",
    "</channel:thinking> <channel:foo>bar</channel:foo> <Channel:SUMMARY>x</CHANNEL:summary>",
    "<channel:thinking>a</channel:action>b</channel:thin</channel:thinking",
    "<channel:action>```json\n{}\n```</channel:action><channel:ReactDecisionOutV2>{}</channel:action>",
    "<<<channel:thinking>>></channel:thinking>>",
    "<channel:usage>[1, 2</channel:usage>\n</channel:usage>",
    "<channel:action>{\n<channel:thinking>`<channel:code>x\n<channel:summary>y",
    "<channel:action>{\n<channel:thinking>As in\n```\n<channel:code>x\n```\n<channel:summary>y",
    "Tags are `<channel:thinking>` and\n```\n<channel:code>\n```\n<channel:summary>s</channel:summary>",
    "`<channel:thinking> `` <channel:summary>` ``\n~~~ `<channel:code>`\nx",
]


def read(text: str, sizes: Iterable[int] = (1_000_000,), **options: int) -> list[Piece]:
    parser = ChannelParser(TAGS, **options)
    pieces: list[Piece] = []
    position = 0
    steps = list(sizes)
    while position < len(text):
        size = steps[len(pieces) % len(steps)] or 1
        pieces += parser.feed(text[position : position + size])
        position += size
    return merged(pieces + parser.finish())


def merged(pieces: list[Piece]) -> list[Piece]:
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        match last, piece:
            case ChannelText(channel, instance, first), ChannelText(same_channel, same_instance, second) if (
                channel == same_channel and instance == same_instance
            ):
                result[-1] = ChannelText(channel, instance, first + second)
            case OutsideText(first), OutsideText(second):
                result[-1] = OutsideText(first + second)
            case _:
                result.append(piece)
    return result


def texts(reply: str, **options: int) -> list[tuple[str, str]]:
    return [
        (piece.channel, piece.text) if isinstance(piece, ChannelText) else ("", piece.text)
        for piece in read(reply, **options)
        if isinstance(piece, ChannelText | OutsideText)
    ]


def test_a_reply_becomes_opened_text_and_closed_pieces() -> None:
    pieces = read("<channel:thinking>hm</channel:thinking>\n<channel:action>{}</channel:action>")

    assert pieces == [
        ChannelOpened("thinking", 0),
        ChannelText("thinking", 0, "hm"),
        ChannelClosed("thinking", 0, complete=True),
        OutsideText("\n"),
        ChannelOpened("action", 0),
        ChannelText("action", 0, "{}"),
        ChannelClosed("action", 0, complete=True),
    ]


def test_text_is_returned_at_once_unless_it_may_become_a_tag() -> None:
    parser = ChannelParser(TAGS)
    parser.feed("<channel:thinking>")

    assert parser.feed("a < b") == [ChannelText("thinking", 0, "a < b")]
    assert parser.feed("x <") == [ChannelText("thinking", 0, "x ")]
    assert parser.feed("/channel:thin") == []
    assert merged(parser.feed("g")) == [ChannelText("thinking", 0, "</channel:thing")]


def test_plain_text_is_what_feed_would_hand_back_unchanged() -> None:
    parser = ChannelParser(TAGS)
    assert not parser.try_pass("x")

    parser.feed("<channel:thinking>")
    assert parser.try_pass("x\n")
    assert not parser.try_pass("x < y")

    parser.feed("<")
    assert not parser.try_pass("x")

    parser.feed("channel:code>")
    assert not parser.try_pass("x")


def test_an_example_in_code_is_held_back_only_so_long() -> None:
    parser = ChannelParser(TAGS, max_held_chars=20_000)
    parser.feed("As in:\n```\n<channel:thinking>")

    assert parser.feed("x" * 19_000) == []
    assert parser.feed("x" * 2_000) == [OutsideText("<channel:thinking>" + "x" * 21_000)]


@pytest.mark.parametrize("cut", [True, False])
def test_a_reply_that_was_cut_may_lack_the_end_of_inline_code(cut: bool) -> None:
    parser = ChannelParser(TAGS)
    parser.feed("A call is `<channel:action>{}</channel:action>")

    pieces = merged(parser.finish(cut=cut))

    assert any(isinstance(piece, ChannelOpened) for piece in pieces) is not cut


def test_repeated_channels_count_their_instances() -> None:
    pieces = read("<channel:action>{}</channel:action><channel:code></channel:code><channel:action>{}</channel:action>")

    opened = [(piece.channel, piece.instance) for piece in pieces if isinstance(piece, ChannelOpened)]
    assert opened == [("action", 0), ("code", 0), ("action", 1)]


def test_names_ignore_letter_case_and_an_alias_is_the_same_channel() -> None:
    pieces = read("<CHANNEL:ReactDecisionOutV2>{}</Channel:ACTION>")

    assert pieces == [
        ChannelOpened("action", 0),
        ChannelText("action", 0, "{}"),
        ChannelClosed("action", 0, complete=True),
    ]


def test_an_opener_closes_the_open_channel() -> None:
    pieces = read("<channel:thinking>a<channel:summary>b</channel:summary>")

    assert pieces[:4] == [
        ChannelOpened("thinking", 0),
        ChannelText("thinking", 0, "a"),
        ChannelClosed("thinking", 0, complete=False),
        ChannelOpened("summary", 0),
    ]


def test_the_end_of_input_closes_what_is_open_and_says_so() -> None:
    assert read("<channel:thinking>a")[-1] == ChannelClosed("thinking", 0, complete=False)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("a</channel:thinking>b<channel:foo>c", [("", "a</channel:thinking>b<channel:foo>c")]),
        ("<channel:thinking>a</channel:summary>b</channel:thinking>", [("thinking", "a</channel:summary>b")]),
        ("<channel: thinking>a", [("", "<channel: thinking>a")]),
        ("<channel:thinking>a `b </channel:thinking>c", [("thinking", "a `b "), ("", "c")]),
        ("<channel:thinking>a</channel:think", [("thinking", "a</channel:think")]),
    ],
)
def test_stray_unknown_and_broken_tags_are_text_and_backticks_hide_nothing(
    reply: str, expected: list[tuple[str, str]]
) -> None:
    assert texts(reply) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (
            "<channel:code>\nx = '</channel:code>'\ny = '<channel:action>'\n</channel:code>!",
            [("code", "\nx = '</channel:code>'\ny = '<channel:action>'\n"), ("", "!")],
        ),
        (
            "<channel:code>a </channel:code> b </channel:code> c",
            [("code", "a </channel:code> b "), ("", " c")],
        ),
        (
            "<channel:code>a</channel:code><channel:summary>s</channel:summary>",
            [("code", "a"), ("summary", "s")],
        ),
        (
            "<channel:code>a</channel:code>\n\n<channel:summary>s</channel:summary>",
            [("code", "a"), ("", "\n\n"), ("summary", "s")],
        ),
        (
            "<channel:code>a </channel:code> b\n<channel:summary>s</channel:summary>",
            [("code", "a </channel:code> b\n"), ("summary", "s")],
        ),
        ("<channel:code></channel:code>", []),
        ("<channel:code>x\n</channel:thinking>\ny\n</channel:code>", [("code", "x\n</channel:thinking>\ny\n")]),
    ],
)
def test_in_code_only_tags_at_the_start_of_a_line_count(reply: str, expected: list[tuple[str, str]]) -> None:
    assert texts(reply) == expected


def test_after_an_inline_closer_code_waits_only_so_long() -> None:
    reply = "<channel:code>a</channel:code>" + "b" * 100 + "<channel:summary>s</channel:summary>"

    assert texts(reply, max_held_chars=200) == [("code", "a"), ("", "b" * 100), ("summary", "s")]
    assert texts(reply, max_held_chars=50) == [("code", reply.removeprefix("<channel:code>"))]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (
            '<channel:action>{"a": "</channel:action>"}</channel:action>',
            [("action", '{"a": "</channel:action>"}')],
        ),
        (
            '<channel:action>{"a": "\\"</channel:action>\\\\"}</channel:action>!',
            [("action", '{"a": "\\"</channel:action>\\\\"}'), ("", "!")],
        ),
        (
            '<channel:action>{"a": "line\n</channel:action>\nline"}</channel:action>',
            [("action", '{"a": "line\n</channel:action>\nline"}')],
        ),
        (
            '<channel:action>{"a": "cut\n</channel:action>\n<channel:summary>s</channel:summary>',
            [("action", '{"a": "cut\n'), ("", "\n"), ("summary", "s")],
        ),
        (
            '<channel:action>{"a": "cut\n</channel:action> and the end',
            [("action", '{"a": "cut\n'), ("", " and the end")],
        ),
        ("<channel:action>no object</channel:action>!", [("action", "no object"), ("", "!")]),
        (
            '<channel:action>{"a": 1\n<channel:summary>s</channel:summary>',
            [("action", '{"a": 1\n'), ("summary", "s")],
        ),
        (
            '<channel:action>{"a": 1} {"b": "</channel:action>"}</channel:action>',
            [("action", '{"a": 1} {"b": "</channel:action>"}')],
        ),
    ],
)
def test_in_json_a_tag_counts_when_the_value_is_complete_or_never_will_be(
    reply: str, expected: list[tuple[str, str]]
) -> None:
    assert texts(reply) == expected


def test_an_incomplete_value_ends_at_a_closer_on_a_line_start() -> None:
    reply = '<channel:action>{"a": "x\n</channel:action>\n' + "b" * 100 + '"}</channel:action>'

    assert texts(reply, max_held_chars=200) == [("action", reply[16:-17])]
    assert texts(reply, max_held_chars=50)[0] == ("action", '{"a": "x\n')


@pytest.mark.parametrize("reply", TRICKY_REPLIES)
def test_every_cut_of_a_tricky_reply_gives_the_same_pieces(reply: str) -> None:
    whole = read(reply)

    for size in range(1, len(reply)):
        assert read(reply, [size]) == whole


FRAGMENTS = [
    *(
        f"<{slash}channel:{name}>"
        for slash in ("", "/")
        for name in ("thinking", "action", "code", "usage", "foo", "ReactDecisionOutV2", "CODE")
    ),
    *("\n", " ", "x", '"', "\\", "{", "}", "[", "]", '{"a": "b"}', '{"a": "', "<", "</chan", "`", "é", "\U0001f600"),
    *("\n```\n", "```json\n", "\n~~~\n", "well\n", "``", " `", "x" * 260),
]


@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join),
    st.lists(st.integers(1, 30), min_size=1, max_size=8),
    st.sampled_from([0, 5, 40, 65_536]),
)
def test_the_way_of_cutting_never_matters(reply: str, sizes: list[int], held: int) -> None:
    assert read(reply, sizes, max_held_chars=held) == read(reply, max_held_chars=held)


CANONICAL_FRAGMENTS = [part for part in FRAGMENTS if "CODE" not in part and "React" not in part]


@given(st.lists(st.sampled_from(CANONICAL_FRAGMENTS), max_size=40).map("".join))
@example(TRICKY_REPLIES[-4])
@example(TRICKY_REPLIES[-3])
@example(TRICKY_REPLIES[-2])
def test_the_pieces_written_out_again_are_the_reply(reply: str) -> None:
    written = ""
    for piece in read(reply):
        match piece:
            case ChannelText(_, _, text) | OutsideText(text):
                written += text
            case ChannelOpened(channel):
                written += f"<channel:{channel}>"
            case ChannelClosed(channel, _, complete):
                written += f"</channel:{channel}>" if complete else ""

    assert written == reply


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_object_passes_through_an_action(value: object) -> None:
    body = json.dumps({"v": value, "</channel:action>": "\n<channel:code>"}, indent=1)

    pieces = read(f"<channel:action>{body}</channel:action>")

    assert pieces[1:] == [ChannelText("action", 0, body), ChannelClosed("action", 0, complete=True)]


@pytest.mark.parametrize(
    "unit",
    [
        "<channel:thinking>a</channel:thinking>",
        '<channel:action>{"\n</channel:action>\n',
        "<channel:action>{\n</channel:action>",
        "<channel:code>a</channel:code>",
        "<channel:code>a</channel:code><channel:usage>{\n</channel:action>\n",
        "<channel:usage>{\n</channel:usage> <channel:action>{\n</channel:action> ",
        "<",
        "</channel:code>",
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000_000])
def test_work_grows_in_step_with_the_input(
    unit: str, size: int, count_characters: Callable[[Callable[[], object]], int]
) -> None:
    reply = "<channel:code>" + unit * 300

    handled = count_characters(lambda: read(reply, [size]))

    assert handled < 60 * len(reply)


@pytest.mark.parametrize("size", [1, 7, 19, 64, 10_000])
def test_a_lone_backtick_in_a_program_survives_a_channel_behind_it(size: int) -> None:
    program = "\nhtml = f'<b>`{name}</b>'\njs = \"const t = `x\"\n"

    pieces = read(f"<channel:code>{program}</channel:code>\n<channel:thinking>ok`</channel:thinking>", [size])

    assert [(piece.channel, piece.text) for piece in pieces if isinstance(piece, ChannelText)] == [
        ("code", program),
        ("thinking", "ok`"),
    ]


def test_backticks_in_a_string_do_not_delay_the_channel_after_it() -> None:
    parser = ChannelParser(TAGS)
    parser.feed('<channel:action>{"a": "```js\\nlet x = `y"}')

    closed = parser.feed("</channel:action>")
    opened = parser.feed("<channel:action>")

    assert closed == [ChannelClosed("action", 0, complete=True)]
    assert opened == [ChannelOpened("action", 1)]


@pytest.mark.parametrize("beginning", ["<", "</", "<ch", "</channel:thi", "</channel:thinking", "<Channel:action"])
@pytest.mark.parametrize("before", ["", "<channel:thinking>", "<channel:thinking>I think.", "<channel:code>x\n"])
def test_half_a_tag_at_the_end_of_a_cut_reply_is_dropped(before: str, beginning: str) -> None:
    parser = ChannelParser(TAGS)

    pieces = merged([*parser.feed(before + beginning), *parser.finish(cut=True)])

    assert pieces == read(before)


@pytest.mark.parametrize(
    "text",
    [
        "<channel:thinking>a < b",
        "<channel:thinking>a <b",
        "<channel:thinking>see </channel:unknown",
        "a < b",
        "<channel:code>if a <",
        '<channel:action>{"final_answer": "a <',
        '<channel:action>{"final_answer": "write </channel:thinking',
    ],
)
def test_a_cut_reply_loses_no_other_text(text: str) -> None:
    parser = ChannelParser(TAGS)

    pieces = merged([*parser.feed(text), *parser.finish(cut=True)])

    assert pieces == read(text)

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.channels.citations import (
    CitationFormat,
    CitationReplacer,
    build_citer,
    cite_text,
    find_used_sids,
    index_sources,
    parse_sids,
    renumber_citations,
)
from everturn.timeline.sources import Source

SOURCES = (
    Source(1, "One", "https://one.example/a"),
    Source(2, "Two [x] | `y`", "http://two.example/(b) c"),
    Source(3, "Three", "https://three.example"),
    Source(4, "Evil", "javascript:alert(1)"),
    Source(5, "Picture", "https://five.example/p.png", mime="image/png"),
    Source(6, "Notes.txt", "", source_type="file"),
)


def replaced(text: str, output: CitationFormat = "markdown", size: int = 1_000_000) -> str:
    replacer = CitationReplacer(index_sources(SOURCES), output)
    shown = "".join(replacer.feed(text[start : start + size]) for start in range(0, len(text), size))
    return shown + replacer.finish()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [[S:1]].", "a [One](https://one.example/a)."),
        ("[[S:1,3]]", "[One](https://one.example/a) [Three](https://three.example)"),
        ("[[ s : 3 - 3 , 1 ]]", "[Three](https://three.example) [One](https://one.example/a)"),
        ("[[S:3\u20133]]", "[Three](https://three.example)"),
        ("[[[S:1]]]", "[[One](https://one.example/a)]"),
        ("[[S:2]]", "[Two \\[x\\] \\| \\`y\\`](http://two.example/%28b%29%20c)"),
        ("[[S:1,99,100,7]]", "[One](https://one.example/a) [[S:99-100,7]]"),
    ],
)
def test_tokens_become_links_in_markdown(text: str, expected: str) -> None:
    assert replaced(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[[S:99]]",
        "[[S:0]]",
        "[[S:]]",
        "[[S: , ]]",
        "[[S:1--3]]",
        "[[S:1x]]",
        "[[S:1]",
        "[S:1]",
        "[[T:1]]",
        "tail [",
        "tail [[S:1",
        "[[S:5]]",
        "[[S:1" + " " * 300 + "]]",
        "```\n[[S:1]]\n```\n",
        "~~~ [[S:1]]\n[[S:1]]",
    ],
)
def test_unknown_citations_stay_unchanged(text: str) -> None:
    assert replaced(text) == text


def test_after_a_code_fence_tokens_are_replaced_again() -> None:
    assert replaced("```\n[[S:1]]\n```\n[[S:3]]").endswith("```\n[Three](https://three.example)")


def test_only_web_addresses_become_links() -> None:
    assert replaced("[[S:4]] [[S:6]]") == "(Evil) (Notes.txt)"
    assert "javascript" not in replaced("[[S:4]]", "html")


def test_in_html_a_token_becomes_a_sup_with_escaped_links() -> None:
    source = Source(1, 'A "<b>"', "https://one.example/?a=1&b='\"><script>")

    shown = CitationReplacer(index_sources([source, SOURCES[2]]), "html").feed("x[[S:1,3]]")

    assert shown == (
        'x<sup class="cite" data-sids="1,3">'
        '<a href="https://one.example/?a=1&amp;b=%27%22%3E%3Cscript%3E" title="A &quot;&lt;b&gt;&quot;" '
        'target="_blank" rel="noopener noreferrer">1</a>, '
        '<a href="https://three.example" title="Three" target="_blank" rel="noopener noreferrer">3</a></sup>'
    )


def test_used_ids_are_the_cited_evidence_in_order_of_use() -> None:
    replacer = CitationReplacer(index_sources(SOURCES))

    replacer.feed("[[S:3]] [[S:1,3]] [[S:4-6]] [[S:99]] ```x``` [[S:2")

    assert replacer.used_sids == (3, 1)


@pytest.mark.parametrize(
    ("written", "sids"),
    [
        ("1", [1]),
        ("3-1, 2", [1, 2, 3]),
        (" 7 , 1 - 2 ,", [7, 1, 2]),
        ("1-3000000", list(range(1, 201))),
        ("1-150,300-900", [*range(1, 151), *range(300, 350)]),
        ("1,-3", []),
    ],
)
def test_ids_and_ranges_are_read_in_order_and_capped(written: str, sids: list[int]) -> None:
    assert parse_sids(written) == sids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [[S:1]] b", "a [[S:12]] b"),
        ("[[S:1-3]], [[ s : 3, 1 ]]", "[[S:5,12-13]], [[S:5,12]]"),
        ("[[S:4]] and [[S:1,4]]", " and [[S:12]]"),
        ("[[S:x]] [S:1]", "[[S:x]] [S:1]"),
    ],
)
def test_citations_get_other_numbers(text: str, expected: str) -> None:
    assert renumber_citations(text, {1: 12, 2: 13, 3: 5}) == expected


def test_a_token_is_never_shown_in_part() -> None:
    replacer = CitationReplacer(index_sources(SOURCES))

    shown = [replacer.feed(character) for character in "ab [[S:1, 3]] [no] [[S:x"]

    assert "".join(shown[:3]) == "ab "
    assert set(shown[3:12]) == {""}
    assert shown[12] == "[One](https://one.example/a) [Three](https://three.example)"
    assert "".join(shown[13:]) == " [no] [[S:x"


@given(
    st.lists(
        st.sampled_from([*"[]S:,-1 3`~\nx9", "[[S:1]]", "[[S:1,3]]", "```", "\n```\n", "[[ S :"]), max_size=40
    ).map("".join),
    st.integers(1, 9),
    st.sampled_from(["markdown", "html"]),
)
def test_every_cut_gives_the_same_text(text: str, size: int, output: CitationFormat) -> None:
    assert replaced(text, output, size) == replaced(text, output)


@given(st.text(alphabet="[]S:, -1x\n", max_size=60))
def test_without_sources_nothing_changes(text: str) -> None:
    replacer = CitationReplacer({})

    assert replacer.feed(text) + replacer.finish() == text


@pytest.mark.parametrize("unit", ["[", "[[S:1", "[[S:1]] ", "[[S:" + "1," * 100, "\n`", " "])
@pytest.mark.parametrize("size", [1, 7])
def test_work_grows_in_step_with_the_input(
    unit: str, size: int, count_characters: Callable[[Callable[[], object]], int]
) -> None:
    text = unit * (6_000 // len(unit))

    handled = count_characters(lambda: replaced(text, size=size))

    assert handled < 1_500 * len(text)


@pytest.mark.parametrize(
    ("text_format", "expected"),
    [("markdown", "see [One](https://one.example/a)"), ("json", "see [[S:1]]"), ("code", "see [[S:1]]")],
)
def test_a_whole_text_is_cited_as_its_pieces_are(text_format: str, expected: str) -> None:
    sources = index_sources(SOURCES)
    citer = build_citer(sources, text_format)

    pieces = "".join(citer.feed(char) for char in "see [[S:1]]") + citer.finish()

    assert pieces == cite_text(sources, "see [[S:1]]", text_format) == expected


def test_the_evidence_in_a_written_text_is_found() -> None:
    sources = index_sources(SOURCES)

    assert find_used_sids(sources, "[[S:3]] and [[S:1,3]]", "markdown") == (3, 1)
    assert find_used_sids(sources, "[[S:3]]", "json") == ()


@pytest.mark.parametrize(
    "text", ["\uff3b\uff3bS:1\uff3d\uff3d", "\u3010[S:1]\u3011", "[[S\uff1a1]]", "[[S:\u200b1]]", "[\u200b[S:1]]"]
)
def test_full_width_and_invisible_characters_are_not_tokens(text: str) -> None:
    assert replaced(text, size=1) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](https://x.example)[[S:1]]", "[a](https://x.example)[One](https://one.example/a)"),
        ("[[S:1]](note)", "[One](https://one.example/a)(note)"),
        ("[[S:1]][[S:3]]", "[One](https://one.example/a)[Three](https://three.example)"),
    ],
)
def test_a_token_next_to_a_link_or_another_token_is_replaced(text: str, expected: str) -> None:
    assert replaced(text, size=1) == expected


def test_a_token_that_the_end_cuts_off_is_shown_as_it_is() -> None:
    assert replaced("so it is [[S:1", size=1) == "so it is [[S:1"


def test_a_range_written_backwards_is_the_range() -> None:
    assert replaced("[[S:3-1]]") == replaced("[[S:1-3]]")

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.errors import Invalid
from everturn.timeline.sources import (
    MAX_ROWS,
    MAX_TEXT_CHARS,
    SNIPPET_CHARS,
    Merged,
    PoolFull,
    Source,
    SourceChange,
    SourceDraft,
    merge_sources,
    snippet_of,
)

PAGE = SourceDraft("Page", "https://a.example/x")


def pool_of(*merged: Merged) -> dict[str, Source]:
    return {change.row.key: change.row for step in merged for change in step.changes}


def test_merging_assigns_new_numbers_and_reuses_those_of_duplicates() -> None:
    first = merge_sources({}, [PAGE, SourceDraft("B", "https://b.example")])
    second = merge_sources(
        pool_of(first), [SourceDraft("C", "https://c.example"), replace(PAGE, url=PAGE.url + "#top")]
    )

    assert [row.sid for row in first.rows] == [1, 2]
    assert [row.sid for row in second.rows] == [3, 1]


def test_a_source_found_twice_in_one_call_has_one_number() -> None:
    merged = merge_sources({}, [PAGE, replace(PAGE, url="HTTPS://A.example/x?utm_source=mail", text="whole")])

    assert [row.sid for row in merged.rows] == [1, 1]
    assert merged.changes == (SourceChange(merged.rows[0], "whole"),)


def test_a_known_source_gets_longer_texts_and_missing_fields() -> None:
    before = merge_sources({}, [replace(PAGE, text="short", objective_relevance=0.9)])
    better = SourceDraft("Page with a title", PAGE.url, text="a longer text", objective_relevance=0.4, mime="text/html",
                         published_time_iso="2026-01-01", favicon_url="https://a.example/f.ico")  # fmt: skip

    merged = merge_sources(pool_of(before), [better])

    assert merged.changes == (
        SourceChange(
            Source(1, "Page with a title", PAGE.url, "web", 0.9, "2026-01-01", "https://a.example/f.ico",
                   "a longer text", "text/html", text_chars=13, key="https://a.example/x"),
            "a longer text",
        ),
    )  # fmt: skip


def test_a_known_source_keeps_its_better_fields() -> None:
    before = merge_sources({}, [replace(PAGE, title="The long title", text="the long text")])

    merged = merge_sources(pool_of(before), [replace(PAGE, title="Short", text="short")])

    assert merged == Merged(before.rows, ())


def test_a_document_is_one_source_whatever_lines_are_named() -> None:
    drafts = [SourceDraft("A", f"ks:docs/a.md{lines}", "file") for lines in ("", "#L3", "#L10-L40")]

    one, two, three = merge_sources({}, drafts).rows

    assert one.sid == two.sid == three.sid
    assert (one.key, one.is_evidence) == ("knowledge:ks:docs/a.md", True)


def test_a_file_is_a_source_by_its_ref() -> None:
    image = SourceDraft("plan.png", "fi:turn_1.files/plan.png", "file", mime="image/png")

    (row,) = merge_sources({}, [image]).rows

    assert (row.key, row.is_image, row.is_evidence) == ("file:fi:turn_1.files/plan.png", True, False)


def test_a_row_carries_only_the_beginning_of_its_text() -> None:
    whole = "word " * 10_000

    (change,) = merge_sources({}, [replace(PAGE, text=whole)]).changes

    assert (change.text, change.row.text_chars) == (whole, len(whole))
    assert len(change.row.text) <= SNIPPET_CHARS and change.row.text == snippet_of(whole)


def test_a_text_over_the_cap_is_cut_with_a_note() -> None:
    (change,) = merge_sources({}, [replace(PAGE, text="x" * (MAX_TEXT_CHARS + 1))]).changes

    assert change.text is not None and len(change.text) == MAX_TEXT_CHARS
    assert change.text.endswith(f"[Cut here: the whole text has {MAX_TEXT_CHARS + 1} characters.]")


def test_characters_that_nothing_can_store_are_replaced() -> None:
    (change,) = merge_sources({}, [replace(PAGE, title="a\x00b", text="\ud800")]).changes

    assert (change.row.title, change.text) == ("a\ufffdb", "\ufffd")


def test_one_draft_without_an_address_refuses_the_whole_claim() -> None:
    with pytest.raises(Invalid):
        merge_sources({}, [PAGE, SourceDraft("nothing", "")])


def test_a_full_pool_takes_known_sources_only() -> None:
    full = pool_of(merge_sources({}, [replace(PAGE, url=f"https://a.example/{n}") for n in range(MAX_ROWS)]))

    assert merge_sources(full, [replace(PAGE, url="https://a.example/0")]).rows[0].sid == 1
    with pytest.raises(PoolFull):
        merge_sources(full, [PAGE])


DRAFTS = st.builds(
    SourceDraft,
    title=st.text(max_size=8),
    url=st.sampled_from([f"https://a.example/{n}" for n in range(6)]),
    text=st.text(max_size=12),
    objective_relevance=st.none() | st.floats(0, 1),
)


@given(st.lists(st.lists(DRAFTS, max_size=4), max_size=6))
def test_an_address_keeps_its_number(claims: list[list[SourceDraft]]) -> None:
    pool: dict[str, Source] = {}
    sids: dict[str, int] = {}
    for drafts in claims:
        merged = merge_sources(pool, drafts)
        pool |= {change.row.key: change.row for change in merged.changes}
        for draft, row in zip(drafts, merged.rows, strict=True):
            assert sids.setdefault(draft.url, row.sid) == row.sid

    assert sorted(row.sid for row in pool.values()) == list(range(1, len(pool) + 1))


@given(st.lists(DRAFTS, max_size=6, unique_by=lambda draft: draft.url), st.randoms())
def test_the_order_of_different_sources_changes_nothing_but_their_numbers(drafts: list[SourceDraft], random) -> None:
    shuffled = random.sample(drafts, len(drafts))

    one, other = merge_sources({}, drafts), merge_sources({}, shuffled)

    assert {replace(row, sid=1) for row in one.rows} == {replace(row, sid=1) for row in other.rows}

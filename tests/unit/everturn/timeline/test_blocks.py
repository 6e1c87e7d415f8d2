"""Blocks are chained by hashes over what is stored, and every type has a body and an author."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from everturn.core.ids import CallId, TurnId
from everturn.timeline.blocks import (
    GENESIS_HASH,
    Author,
    Block,
    BlockDraft,
    BlockType,
    CompletionBody,
    NotesBody,
    ThinkingBody,
    ToolCallBody,
    canonical_json,
    chain_blocks,
    parse_body,
)
from everturn_testing.timeline import first_broken_link

TS = "2026-03-01T12:00:00.000Z"


def draft(text: str) -> BlockDraft:
    return BlockDraft(TurnId("turn_1"), 1, BlockType.THINKING, "ar:x", ThinkingBody(text=text), TS)


def chain(*texts: str, next_seq: int = 1, last_hash: str = GENESIS_HASH) -> tuple[Block, ...]:
    return chain_blocks(map(draft, texts), next_seq=next_seq, last_hash=last_hash)


def test_places_are_given_one_after_the_other() -> None:
    blocks = chain("a", "b", "c", next_seq=5)

    assert [block.seq for block in blocks] == [5, 6, 7]
    assert len({block.hash for block in blocks}) == 3


@given(st.lists(st.text(), max_size=6), st.integers(0, 6))
def test_a_chain_can_be_written_in_any_portions(texts: list[str], cut: int) -> None:
    whole = chain(*texts)

    first = chain(*texts[:cut])
    rest = chain(*texts[cut:], next_seq=len(first) + 1, last_hash=first[-1].hash if first else GENESIS_HASH)

    assert first + rest == whole
    assert first_broken_link(whole) is None


@pytest.mark.parametrize(
    "change",
    [
        {"body_json": '{"text":"forged"}'},
        {"ref": "ar:y"},
        {"seq": 9},
        {"round": 2},
        {"ts": "2026-03-01T12:00:00.001Z"},
        {"turn_id": TurnId("turn_2")},
        {"type": BlockType.NOTES},
        {"call_id": CallId("call_1")},
        {"hash": GENESIS_HASH},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_breaks_the_chain_at_its_place(change: dict[str, object]) -> None:
    blocks = chain("a", "b", "c")

    forged = replace(blocks[1], **change)

    assert first_broken_link((blocks[0], forged, blocks[2])) == forged.seq


def test_a_missing_block_breaks_the_chain() -> None:
    blocks = chain("a", "b", "c")

    assert first_broken_link((blocks[0], blocks[2])) == 3


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9))
def test_a_body_reads_back_from_its_json(text: str, instance: int) -> None:
    body = CompletionBody(text=text, instance=instance, followups=(text,))

    encoded = canonical_json(body)

    assert parse_body(BlockType.COMPLETION, encoded) == body
    assert "\x00" not in encoded
    assert canonical_json(parse_body(BlockType.COMPLETION, encoded)) == encoded


def test_canonical_json_has_sorted_keys_and_no_blanks() -> None:
    body = ToolCallBody(tool_id="io.read", params={"b": 1, "a": {"d": "é", "c": None}})

    assert canonical_json(body) == '{"params":{"a":{"c":null,"d":"é"},"b":1},"tool_id":"io.read"}'


def test_fields_at_their_default_are_left_out() -> None:
    assert canonical_json(ThinkingBody(text="a")) == '{"text":"a"}'


@pytest.mark.parametrize("body", ["{}", '{"text":1}', "[]", "x"])
def test_a_value_of_the_wrong_type_is_refused(body: str) -> None:
    with pytest.raises(ValidationError):
        parse_body(BlockType.NOTES, body)


@pytest.mark.parametrize("kind", list(BlockType))
def test_every_type_has_a_row_in_the_table(kind: BlockType) -> None:
    assert kind.traits.body


def test_a_block_knows_its_author() -> None:
    (block,) = chain("a")

    assert block.author is Author.ASSISTANT
    assert replace(block, type=BlockType.EXIT).author is Author.RUNTIME
    assert replace(block, body=NotesBody(text="a"), type=BlockType.TOOL_RESULT).author is Author.TOOL

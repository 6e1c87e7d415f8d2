"""Whatever is done to the lines of an export is found, at the first line that is not what it was."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.lifecycle.export_check import ExportBroken, ExportWriter, check_export
from everturn.lifecycle.exports import EXPORT_LINE, BlockLine, BrokenLine, ExportLine
from everturn.timeline.blocks import GENESIS_HASH
from everturn_testing.lifecycle.exports import build_export

LINES = build_export("one", "two \u2028 three", "")
COUNT = len(LINES)


def broken_at(lines: list[bytes]) -> int:
    with pytest.raises(ExportBroken) as caught:
        check_export(lines)
    return caught.value.number


def parse(raw: bytes) -> ExportLine:
    return EXPORT_LINE.validate_json(raw.rpartition(b',"chain"')[0] + b"}")


def rewrite(lines: list[ExportLine]) -> list[bytes]:
    """The lines with chains as a forger would compute them."""
    writer = ExportWriter()
    return [writer.render(line) for line in lines]


def test_a_complete_export_reports_its_content() -> None:
    report = check_export(LINES)

    assert report.end.blocks == 9
    assert parse(LINES[9]).model_dump()["hash"] == report.end.last_hash


@settings(max_examples=300, deadline=None)
@given(st.integers(0, COUNT - 1), st.data())
def test_a_changed_byte_is_found_in_its_line(number: int, data: st.DataObject) -> None:
    line = LINES[number]
    place = data.draw(st.integers(0, len(line) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != line[place]))

    changed = [*LINES[:number], line[:place] + bytes([byte]) + line[place + 1 :], *LINES[number + 1 :]]

    # A line break in the middle makes two lines of one for a reader of lines.
    assert broken_at(b"".join(changed).splitlines(keepends=True) if byte == 10 else changed) <= number + 1


@given(st.integers(0, COUNT - 1))
def test_a_missing_line_is_found_where_it_is_missing(number: int) -> None:
    assert broken_at([*LINES[:number], *LINES[number + 1 :]]) == number + 1


@given(st.integers(0, COUNT), st.integers(0, COUNT - 1))
def test_an_added_line_is_found(place: int, which: int) -> None:
    assert broken_at([*LINES[:place], LINES[which], *LINES[place:]]) in (place + 1, place + 2)


@given(st.permutations(range(COUNT)).filter(lambda order: order != list(range(COUNT))))
def test_another_order_is_found_at_the_first_line_out_of_place(order: list[int]) -> None:
    first = next(place for place, which in enumerate(order) if place != which)

    assert broken_at([LINES[which] for which in order]) == first + 1


@pytest.mark.parametrize("lines", [[], [b""], [b"\n"], [b"{}\n"], LINES[:-1], [LINES[0].rstrip(b"\n") + b"\r\n"]])
def test_an_incomplete_export_is_refused(lines: list[bytes]) -> None:
    assert broken_at(lines) == max(1, len(lines) if len(lines) < 2 else len(lines) + 1)


def test_an_interrupted_export_is_reported() -> None:
    lines = rewrite([parse(LINES[0]), BrokenLine(detail="Try again.")])

    with pytest.raises(ExportBroken, match=r"line 2: .*Try again"):
        check_export(lines)


@pytest.mark.parametrize(
    "change",
    [
        {"body": '{"text":"other"}'},
        {"seq": 3},
        {"turn_id": "turn_9"},
        {"round": 4},
        {"type": "react.note"},
        {"ref": "ar:turn_1.x"},
        {"call_id": "call_1"},
        {"ts": "2026-03-01T12:00:00.001Z"},
        {"previous": GENESIS_HASH},
        {"hash": GENESIS_HASH},
    ],
)
def test_a_changed_block_is_found_by_its_own_hash(change: dict[str, object]) -> None:
    lines = [parse(raw) for raw in LINES]
    assert isinstance(lines[2], BlockLine)
    lines[2] = lines[2].model_copy(update=change)

    assert broken_at(rewrite(lines)) == 3


def test_blocks_that_the_header_promised_are_missed() -> None:
    lines = [parse(raw) for raw in LINES]
    writer = ExportWriter()
    fewer = [writer.render(line) for line in (*lines[:7], *lines[10:-1])]

    assert broken_at([*fewer, writer.render_end()]) == len(fewer) + 1


def test_totals_that_count_other_lines_are_found() -> None:
    lines = [parse(raw) for raw in LINES]
    end = lines[-1].model_copy(update={"feedback": 2})

    assert broken_at(rewrite([*lines[:-1], end])) == COUNT

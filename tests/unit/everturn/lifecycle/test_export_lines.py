"""Each line carries a hash over itself and the line before it."""

import json

from everturn.lifecycle.export_check import ExportWriter, chain_line
from everturn.lifecycle.exports import BrokenLine
from everturn.timeline.blocks import GENESIS_HASH
from everturn_testing.lifecycle.exports import build_export


def test_a_line_is_one_json_object_that_ends_with_its_hash() -> None:
    raw = ExportWriter().render(BrokenLine(detail="a\nb"))

    assert raw.endswith(b'"}\n')
    assert raw.count(b"\n") == 1
    assert list(json.loads(raw)) == ["line", "detail", "chain"]


def test_the_same_line_has_another_hash_after_another_one() -> None:
    text = b'{"line":"broken"'

    assert chain_line(GENESIS_HASH, text) != chain_line("1" * 64, text)


def test_the_end_line_counts_what_was_written() -> None:
    end = json.loads(build_export("one")[-1])

    assert (end["blocks"], end["artifacts"], end["signals"], end["feedback"]) == (3, 0, 0, 1)

"""What models, programs and people write is read in a time that grows with its length, however it is written."""

from collections.abc import Callable

import pytest
from helpers.linear_cost import check_linear, repeat

from chat_proc.channels.citations import cite_text
from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.channels.json_actions import find_json_actions
from chat_proc.channels.prose import read_usable_text
from chat_proc.models.json_values import read_json
from chat_proc.timeline.compaction.turn_facts import summarize_turns
from chat_proc.workspace.naming import find_names, find_similar
from chat_proc.workspace.unified_diff import MAX_SEARCHED_LINES, Applied, Refused, apply_diff
from everturn.core.ids import TurnId
from everturn.timeline.blocks import BlockDraft, BlockType, SummaryBody, chain_blocks


def stream_by_characters(text: str) -> None:
    stream = DecisionStream()
    for char in text:
        stream.feed(char)
    stream.finish()


def find_written(text: str) -> None:
    find_json_actions(text, {"a": "a"})


def tell_summary(text: str) -> None:
    draft = BlockDraft(
        TurnId("turn_1"), 0, BlockType.WORKING_SUMMARY, "ar:turn_1.summary", SummaryBody(text=text), "now"
    )
    summarize_turns(chain_blocks([draft], next_seq=1, last_hash=""))


def patch_file(lines: str) -> None:
    apply_diff("a\n" * 100, f"@@ -1 +1 @@\n{lines}")


def patch_alike_lines(text: str) -> None:
    half = text.count("\n") // 2
    apply_diff(text, "@@\n" + " a\n" * half + "-b\n")


@pytest.mark.parametrize(
    ("work", "build"),
    [
        (lambda text: cite_text({}, text), repeat(" ", after="x")),
        (lambda text: cite_text({}, text), repeat("[[S:1", after="x")),
        (read_json, repeat(" ", before="{}", after="x")),
        (read_json, repeat("`", before="{}", after="x")),
        (read_usable_text, repeat("a", before="```")),
        (read_usable_text, repeat("a ", before="```")),
        (read_usable_text, repeat("</answer>", after="x")),
        (read_usable_text, repeat("```\n", before="x ")),
        (read_usable_text, repeat("<", after="</think>")),
        (read_usable_text, repeat('{ "action" ', before="x")),
        (find_written, repeat("} ", before="x")),
        (find_written, repeat("</a>", before="x }", after="x")),
        (stream_by_characters, repeat("{ ", before="The answer is this. ")),
        (stream_by_characters, repeat("`", before="The answer is this. ")),
        (stream_by_characters, repeat("<channel:", before="<channel:action>{")),
        (stream_by_characters, repeat(' </channel:action>"', before='<channel:action>{"final_answer": "')),
        (tell_summary, repeat(" ", before="goal", after="x")),
        (lambda text: find_names([text]), repeat("turn_a/")),
        (lambda text: find_names([text]), repeat("conv_a/turn_a/", after='"')),
        (patch_file, repeat("+\n")),
        (patch_file, repeat("+\n\\\n")),
        (patch_alike_lines, repeat("a\n")),
    ],
)
def test_hostile_text_is_read_in_linear_time(work: Callable[[str], object], build: Callable[[int], str]) -> None:
    check_linear(work, build)


def test_an_outcome_of_many_lines_is_read_in_linear_time() -> None:
    # Shorter texts are copied so fast that even a copy for each line can't be measured.
    check_linear(tell_summary, repeat("a\n", before="outcome: "), chars=100_000)


def test_a_diff_whose_hunks_have_to_be_searched_takes_bounded_work() -> None:
    file = "a\n" * 100_000
    hunks = MAX_SEARCHED_LINES // 100_000 + 10

    stated = apply_diff(file, "".join(f"@@ -{line} +{line} @@\n-a\n" for line in range(1, hunks + 1)))
    searched = apply_diff(file, "@@ -1 +1 @@\n-a\n" * hunks)

    assert isinstance(stated, Applied)
    assert isinstance(searched, Refused)
    assert searched.code == "too_many_searches"


def test_similar_paths_are_found_among_many_that_are_alike() -> None:
    paths = [f"turn_1/files/{'a' * 150}{number}" for number in range(1_000)]
    check_linear(
        lambda text: find_similar(paths[7] + "z", paths[: len(text)], count=1, cutoff=0.7), "x".__mul__, chars=50
    )

    assert find_similar("turn_1/files/sales.csv", ["turn_1/files/sale.csv", "x"], count=1, cutoff=0.7) == [
        "turn_1/files/sale.csv"
    ]
    assert find_similar("turn_1/files/sales.csv", ["x", "y"], count=1, cutoff=0.7) == []

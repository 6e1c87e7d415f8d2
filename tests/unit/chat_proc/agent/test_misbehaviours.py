"""Whatever the model does, a turn ends in exactly one terminal event, with a text or a problem, within its rounds."""

import os
from pathlib import Path
from typing import cast

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.misbehaviours import ECHO, FREE, RUN, TABLE, Misbehaviour, render_table
from turn_harness.replies import answer, cut_answer
from turn_harness.tools import DemoTool, FreeParams

from chat_proc.agent.drafting import CUT_WORDS
from everturn.events.model import TERMINAL_TYPES, ChatComplete
from everturn.timeline.blocks import NoticeBody, ToolCallBody
from everturn.timeline.turns import CutReason
from everturn_testing.models.scripted_model import Finish, Say, Script

DOCUMENT = Path(__file__).parents[4] / "docs" / "misbehaviours.md"
INTRODUCTION = """# What happens when a model misbehaves

Generated from `tests/support/turn_harness/misbehaviours.py`; each row is a test. A reply or an action that can't be
used is returned to the model as a `react.notice` with the code below and a sentence that says what to fix. The model
gets two attempts in a row to repair it; a good round resets the count. A third failure leads to one closing call. A
turn always gets exactly one terminal event. An answer that reached the user is kept, whatever else is wrong with the
reply, unless the JSON that it was read from is broken: then it may be only a part of the answer, and is withdrawn.

"""


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.what.replace(" ", "_"))
async def test_a_turn_with_a_misbehaving_model_ends(row: Misbehaviour) -> None:
    tools = [
        DemoTool(ECHO, strategy="exploration"),
        DemoTool(RUN, strategy="exploitation", takes_code=True),
        DemoTool(FREE, params=FreeParams),
    ]
    bench = Bench(*row.replies, tools=tools, limits=row.limits, chunk_chars=row.chunk_chars, fanout=row.fanout)
    await bench.say("Hello.")

    await bench.work()

    await check_conversation(bench)
    (end,) = [event.data for event in await bench.published() if event.type in TERMINAL_TYPES]
    if isinstance(end, ChatComplete):
        assert (end.outcome, end.answer) == (row.ends, row.text)
    else:
        assert row.text is None
        assert end.problem.type.endswith(row.ends)
        assert end.problem.title
    bodies = [block.body for block in bench.blocks]
    assert tuple(body.code for body in bodies if isinstance(body, NoticeBody)) == row.notices
    assert tuple(body.tool_id for body in bodies if isinstance(body, ToolCallBody)) == row.calls
    assert len(bench.model.requests) == len(row.replies)
    assert end.rounds <= row.limits.rounds + 1


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([Say(cut_answer("One, two")), Finish("length")], "length"),
        ([Say(cut_answer("One, two")), Finish("content_filter")], "content_filter"),
        ([Say(cut_answer("One, two")), Finish("refusal")], "refusal"),
        ([Say(cut_answer("One, two"))], "incomplete"),
        ([Say(cut_answer("na " * 140_000))], "size_limit"),
    ],
)
async def test_a_cut_answer_has_a_reason_and_can_be_continued(script: Script, reason: str) -> None:
    bench = Bench(script, answer("three."), chunk_chars=50_000)
    await bench.say("Count.")
    await bench.work()
    await bench.say("Continue.")
    await bench.work()

    first, second = [event.data for event in await bench.published() if isinstance(event.data, ChatComplete)]
    assert (first.outcome, first.cut_reason) == ("cut", reason)
    assert (second.outcome, second.cut_reason) == ("completed", None)
    prompt = "".join(part.text for message in bench.model.requests[-1].messages for part in message.parts)
    assert f"Your answer above is incomplete: {CUT_WORDS[cast(CutReason, reason)]}." in prompt


async def test_an_answer_that_ends_before_the_limit_cuts_its_summary_is_whole() -> None:
    bench = Bench([Say(answer("All of it.") + "<channel:summary>Goal: ha"), Finish("length")])
    await bench.say("Hello.")
    await bench.work()

    (end,) = [event.data for event in await bench.published() if isinstance(event.data, ChatComplete)]
    assert (end.outcome, end.cut_reason, end.answer) == ("completed", None, "All of it.")


def test_the_table_has_at_least_forty_rows_and_each_is_another_one() -> None:
    assert len({(row.what, row.fanout) for row in TABLE}) == len(TABLE) >= 40


def test_the_document_shows_the_table_as_it_is() -> None:
    """Run with UPDATE_GOLDEN=1 after a wanted change, and read the difference."""
    text = INTRODUCTION + render_table()
    if os.environ.get("UPDATE_GOLDEN"):
        DOCUMENT.write_text(text, encoding="utf-8")

    assert DOCUMENT.read_text(encoding="utf-8") == text

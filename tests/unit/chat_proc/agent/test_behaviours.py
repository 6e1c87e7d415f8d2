"""Whatever a model does, each codec understands it if it can be understood, and a person never reads our markup."""

import os
import re
from pathlib import Path

import pytest
from turn_harness.behaviours import CODECS, TABLE, Behaviour, has_text, play, render_row
from turn_harness.checks import check_conversation

from everturn.models.port import CodecName

DOCUMENT = Path(__file__).parents[4] / "docs" / "models.md"
BEGIN, END = "## What models do, and what happens then\n", "## Tried together\n"
INTRODUCTION = """Generated from `tests/support/turn_harness/behaviours.py`; each row is tested with each
[codec](how-to/configure.md#codecs). Where a row does not say how an action is written, it is written in the form of the
column's codec; otherwise, the reply is the same for all three. No turn ends with an error if the model wrote usable
text. Tokens are those of all replies / all requests of the turn, estimated from their characters. The tests use a
prompt of a few words; native requests also contain the declarations of five tools. The column "notices" has the codes
of the notices that the model gets; [misbehaviours](misbehaviours.md) shows more replies that lead to them. Steps are
the calls that run. If a turn ends as `error`, the last column is the type of the problem.

| the model | model calls | tokens: channels | native | json | notices | steps | the turn ends as | the person sees |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
OWN_MARKUP = re.compile(r'(?<!`)</?(?:channel:|tool_call|think|invoke)|\{\s*"(?:action|name|tool|function|type)"')


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.what.replace(" ", "_"))
async def test_each_codec_makes_the_best_of_what_a_model_does(row: Behaviour, codec: CodecName) -> None:
    bench, outcome = await play(row, codec)

    assert (outcome.ends, outcome.sees) == (row.ends, row.sees)
    assert outcome.results == ("echo: x",) * row.steps_under.get(codec, row.steps)
    assert not OWN_MARKUP.search(outcome.sees)
    await check_conversation(bench)


def test_no_turn_ends_with_an_error_if_its_model_wrote_text() -> None:
    assert [row.what for row in TABLE if row.ends == "error" and has_text(row)] == []


async def test_the_document_shows_the_table_as_it_is() -> None:
    """Run with UPDATE_GOLDEN=1 after a wanted change, and read the difference."""
    lines = [render_row(row, {codec: (await play(row, codec))[1] for codec in CODECS}) for row in TABLE]
    section = f"{BEGIN}{INTRODUCTION}" + "\n".join(lines) + "\n\n"
    text = DOCUMENT.read_text(encoding="utf-8")
    begin = text.index(BEGIN) if BEGIN in text else text.index(END)
    if os.environ.get("UPDATE_GOLDEN"):
        text = text[:begin] + section + text[text.index(END) :]
        DOCUMENT.write_text(text, encoding="utf-8")

    assert text[begin : text.index(END)] == section

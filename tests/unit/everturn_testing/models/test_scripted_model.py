"""The scripted model plays its scripts in order, step by step, and remembers what it was asked."""

import asyncio
from contextlib import aclosing

import pytest

from everturn.models.port import ModelFailed, ModelUsage, ReasoningDelta, ReplyFinished, TextDelta
from everturn_testing.models.model_contract import build_request, collect_pieces, join_text
from everturn_testing.models.scripted_model import Cut, Fail, Finish, Pause, Say, ScriptedModel, ScriptExhausted, Think


async def test_scripts_play_in_order_and_requests_are_kept() -> None:
    model = ScriptedModel(["one", "two"])

    texts = [join_text(await collect_pieces(model, build_request(text))) for text in ("a", "b")]

    assert texts == ["one", "two"]
    assert model.requests == [build_request("a"), build_request("b")]


async def test_text_arrives_in_chunks_of_the_asked_size() -> None:
    model = ScriptedModel(["abcde"], chunk_chars=2)

    pieces = await collect_pieces(model, build_request())

    assert pieces[:3] == [TextDelta("ab"), TextDelta("cd"), TextDelta("e")]


async def test_a_script_plays_its_steps_in_order() -> None:
    usage = ModelUsage(input_tokens=7, output_tokens=3)
    model = ScriptedModel([[Think("hm"), Say("hi"), Finish("length", usage)]])

    pieces = await collect_pieces(model, build_request())

    assert pieces == [ReasoningDelta("hm"), TextDelta("hi"), ReplyFinished("length", usage)]


async def test_a_pause_waits_for_its_event() -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([[Say("a"), Pause(go_on), Say("b")]])

    async with aclosing(model.generate(build_request())) as pieces:
        first = await anext(pieces)
        second = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        waiting = not second.done()
        go_on.set()

        assert (first, waiting, await second) == (TextDelta("a"), True, TextDelta("b"))


async def test_a_failure_comes_after_the_text_before_it() -> None:
    model = ScriptedModel([[Say("a"), Fail(ModelFailed("broken"))]])

    async with aclosing(model.generate(build_request())) as pieces:
        assert await anext(pieces) == TextDelta("a")
        with pytest.raises(ModelFailed, match="broken"):
            await anext(pieces)


async def test_a_cut_reply_has_no_finish() -> None:
    pieces = await collect_pieces(ScriptedModel([[Say("a"), Cut()]]), build_request())

    assert pieces == [TextDelta("a")]


async def test_an_exhausted_model_raises_an_error() -> None:
    model = ScriptedModel(["only one"])
    await collect_pieces(model, build_request())

    with pytest.raises(ScriptExhausted, match="call 2 of a model with 1 scripts"):
        await collect_pieces(model, build_request())


async def test_a_reply_that_was_closed_counts_as_unfinished() -> None:
    model = ScriptedModel(["a long reply", "another"], chunk_chars=2)

    async with aclosing(model.generate(build_request())) as pieces:
        await anext(pieces)
    await collect_pieces(model, build_request())

    assert model.unfinished == 1


async def test_scripts_can_be_added_later() -> None:
    model = ScriptedModel()
    model.add("late")

    assert join_text(await collect_pieces(model, build_request())) == "late"

from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import NONSENSE, answer

from chat_proc.agent.kit import TurnLimits
from everturn.events.model import ChatDelta
from everturn.timeline.blocks import CompletionBody, ThinkingBody
from everturn.timeline.turns import Outcome


def build(closing_reply: str) -> Bench:
    return Bench(NONSENSE, closing_reply, limits=TurnLimits(max_repairs=0))


async def run(bench: Bench) -> None:
    await bench.say("Hello.")
    await bench.work()
    await check_conversation(bench)


async def test_the_closing_prompt_names_the_reached_cap() -> None:
    bench = build(answer("All I have."))

    await run(bench)

    assert "Close now: the limit on replies that could not be used." in str(bench.model.requests[1])


async def test_the_answer_is_streamed_and_kept_with_its_thinking_and_summary() -> None:
    bench = build(answer("All I have.", thinking="Sum up.", summary="did little"))

    await run(bench)

    assert bench.texts(CompletionBody) == ["All I have."]
    assert bench.texts(ThinkingBody) == ["Sum up."]
    assert "conv.working.summary" in bench.types
    assert bench.exits[0].outcome is Outcome.CAPPED


async def test_text_outside_channels_is_shown_as_the_answer_after_all() -> None:
    bench = build("  Plain words.  ")

    await run(bench)

    deltas = [event.data for event in await bench.published() if isinstance(event.data, ChatDelta)]
    assert "".join(delta.text for delta in deltas) == "Plain words."


async def test_an_empty_reply_fails_the_turn_with_the_cap_in_words() -> None:
    bench = build("")

    await run(bench)

    error = bench.exits[0].error
    assert error is not None
    assert "the limit on replies that could not be used" in error.detail


async def test_the_round_of_the_closing_call_counts() -> None:
    bench = build(answer("All I have."))

    await run(bench)

    assert bench.exits[0].rounds == 2

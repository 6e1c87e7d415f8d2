from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import NONSENSE, answer, call
from turn_harness.tools import DemoTool

from everturn.events.model import ChatDelta
from everturn.timeline.blocks import BlockType, CompletionBody, NoticeBody, RawDecisionBody
from everturn.turns.model import Commit, EffectState


async def commits_of(bench: Bench) -> list[Commit]:
    made: list[Commit] = []
    await bench.say("Hello.")
    worker = bench.hire()

    async def keep(commit: Commit) -> None:
        made.append(commit)

    worker.timelines.before_commit = keep
    await worker.work()
    await check_conversation(bench)
    return made


async def test_a_decision_is_committed_before_the_tool_runs() -> None:
    tool = DemoTool()
    bench = Bench(call("demo.echo", {}), answer("Done."), tools=[tool])

    _, decision, result, close = await commits_of(bench)

    assert [effect.state for effect in decision.effects] == [EffectState.INTENDED]
    assert len(decision.usage) == 1
    assert [effect.state for effect in result.effects] == [EffectState.COMMITTED]
    assert close.close is not None


async def test_the_last_decision_and_the_end_are_one_commit() -> None:
    bench = Bench(answer("Done."))

    _, close = await commits_of(bench)

    title, *blocks = close.blocks
    assert title.type == BlockType.STAGE_GATE
    assert [block.type for block in blocks] == [BlockType.ROUND_START, BlockType.COMPLETION, BlockType.EXIT]
    assert len(close.usage) == 1


async def test_an_unusable_reply_is_kept_with_what_is_wrong_with_it() -> None:
    bench = Bench(NONSENSE, answer("Done."))

    await commits_of(bench)

    assert bench.texts(RawDecisionBody) == [NONSENSE]
    assert "JSON" in bench.texts(NoticeBody)[0]
    assert NONSENSE.partition(">")[2].partition("<")[0] in str(bench.model.requests[1])


async def test_completions_of_a_turn_are_counted_in_their_refs() -> None:
    bench = Bench(answer("One."), answer("Two."))
    await bench.say("Hello.")
    worker = bench.hire()

    async def one_more(commit: Commit) -> None:
        if commit.close is not None and not bench.platform.signals:
            await bench.say("More.")

    worker.timelines.before_commit = one_more
    await worker.work()

    refs = [block.ref for block in bench.blocks if isinstance(block.body, CompletionBody)]
    assert len(set(refs)) == 2


async def test_the_pieces_of_an_answer_are_counted_per_round() -> None:
    bench = Bench(answer("One. " * 4_000), answer("Two. " * 4_000), chunk_chars=1_000)
    await bench.say("Hello.")
    worker = bench.hire()

    async def one_more(commit: Commit) -> None:
        if commit.close is not None and not bench.platform.signals:
            await bench.say("More.")

    worker.timelines.before_commit = one_more
    await worker.work()

    pieces = [event for event in await bench.published() if isinstance(event.data, ChatDelta)]
    indexes = [[event.data.index for event in pieces if event.round == number] for number in (1, 2)]
    # Pieces that are sent as one have the index of the first.
    assert all(len(numbers) > 1 and numbers[0] == 0 and numbers == sorted(set(numbers)) for numbers in indexes)
    await check_conversation(bench)

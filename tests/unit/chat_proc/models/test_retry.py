"""The retrying model follows its limits, and never repeats text that was already shown."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from chat_proc.models.replies import build_cut_failure
from chat_proc.models.retry import (
    GATHER_S,
    ModelRetryLimits,
    RetryingModel,
    RetryTiming,
)
from chat_proc.models.streams import MAX_HELD_S, MAX_PIECE_CHARS
from everturn.models.port import (
    ContextLimitExceeded,
    ModelFailed,
    ModelPiece,
    ModelRequest,
    ModelRetry,
    ModelUsage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    ToolCallDelta,
)
from everturn_testing.models.model_contract import (
    LanguageModelContract,
    build_request,
    collect_pieces,
    join_calls,
    join_text,
)
from everturn_testing.models.scripted_model import Call, Cut, Fail, Pause, Say, Script, ScriptedModel, Think


class FakeTime:
    """A clock that moves only when someone sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sleeps: list[float] = []

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds

    def timing(self) -> RetryTiming:
        return RetryTiming(clock=self.clock, sleep=self.sleep, chance=lambda: 1.0)


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


def fail(*, retryable: bool = True, retry_after_s: float | None = None, detail: str = "busy") -> Script:
    failure = ModelFailed(detail, retryable=retryable, retry_after_s=retry_after_s, kind="rate_limited")
    return [Fail(failure)]


class TestContract(LanguageModelContract):
    @pytest.fixture
    def model(self) -> RetryingModel:
        return RetryingModel(ScriptedModel(["Hello, world"] * 2, chunk_chars=4), limits=ModelRetryLimits())


async def test_a_passing_failure_is_retried_with_growing_waits(fake_time: FakeTime) -> None:
    model = ScriptedModel([fail(), fail(), fail(), "hello"])

    pieces = await collect_pieces(
        RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
    )

    assert join_text(pieces) == "hello"
    assert fake_time.sleeps == [0.5, 1.0, 2.0]


async def test_jitter_halves_a_wait_at_most(fake_time: FakeTime) -> None:
    timing = RetryTiming(clock=fake_time.clock, sleep=fake_time.sleep, chance=lambda: 0.0)

    await collect_pieces(
        RetryingModel(ScriptedModel([fail(), "hello"]), limits=ModelRetryLimits(), timing=timing), build_request()
    )

    assert fake_time.sleeps == [0.25]


async def test_a_provider_that_is_away_for_half_a_minute_is_outlived(fake_time: FakeTime) -> None:
    model = ScriptedModel([*[fail()] * 7, "hello"])

    pieces = await collect_pieces(
        RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
    )

    assert join_text(pieces) == "hello"
    assert fake_time.sleeps == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    announced = [piece for piece in pieces if isinstance(piece, ModelRetry)]
    assert announced[0] == ModelRetry(0.5, attempt=2, max_attempts=12, reason="rate_limited")
    assert [each.wait_s for each in announced] == fake_time.sleeps


async def test_where_another_model_can_answer_the_first_is_given_up_earlier(fake_time: FakeTime) -> None:
    model = ScriptedModel([fail() for _ in range(12)])

    with pytest.raises(ModelFailed):
        await collect_pieces(
            RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()).before_fallback(),
            build_request(),
        )

    assert 10 <= sum(fake_time.sleeps) <= 32


async def test_after_a_minute_of_failures_the_last_one_is_raised(fake_time: FakeTime) -> None:
    model = ScriptedModel([fail(detail=f"number {n}") for n in range(1, 13)])

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(
            RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
        )

    assert raised.value.detail == f"number {len(model.requests)}"
    assert 60 <= sum(fake_time.sleeps) <= 76
    assert raised.value.retryable
    assert not raised.value.partial


async def test_a_lasting_failure_is_not_retried(fake_time: FakeTime) -> None:
    model = ScriptedModel([fail(retryable=False), "hello"])

    with pytest.raises(ModelFailed):
        await collect_pieces(
            RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
        )

    assert len(model.requests) == 1


NO_STREAM = [Fail(build_cut_failure({"content-type": "text/html"}, datetime.now(UTC), has_events=False))]


async def test_an_answer_that_is_no_stream_is_retried_twice(fake_time: FakeTime) -> None:
    once = ScriptedModel([fail(), NO_STREAM, fail(), NO_STREAM, "hello"])
    always = ScriptedModel([NO_STREAM] * 4)

    pieces = await collect_pieces(
        RetryingModel(once, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
    )
    fake_time.sleeps.clear()
    with pytest.raises(ModelFailed, match="base URL may be wrong"):
        await collect_pieces(
            RetryingModel(always, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
        )

    assert join_text(pieces) == "hello"
    assert [piece.max_attempts for piece in pieces if isinstance(piece, ModelRetry)] == [12, 4, 12, 5]
    assert len(always.requests) == 3
    assert fake_time.sleeps == [0.5, 1.0]


async def test_a_timeout_after_other_failures_is_retried(fake_time: FakeTime) -> None:
    silent = [Fail(ModelFailed("silent", retryable=True, kind="timeout"))]
    model = ScriptedModel([fail(), silent, fail(), "hello"])

    pieces = await collect_pieces(
        RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
    )

    assert join_text(pieces) == "hello"
    assert [piece.max_attempts for piece in pieces if isinstance(piece, ModelRetry)] == [12, 3, 12]


async def test_retry_after_is_waited_for(fake_time: FakeTime) -> None:
    model = ScriptedModel([fail(retry_after_s=7.0), "hello"])

    await collect_pieces(RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request())

    assert fake_time.sleeps == [7.5]


async def test_a_retry_after_above_the_cap_is_not_waited_for(fake_time: FakeTime) -> None:
    model = ScriptedModel([fail(retry_after_s=61.0), "hello"])

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(
            RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
        )

    assert raised.value.retry_after_s == 61.0
    assert fake_time.sleeps == []


async def test_no_attempt_starts_after_the_budget(fake_time: FakeTime) -> None:
    model = ScriptedModel([fail(retry_after_s=20.0)] * 4)
    limits = ModelRetryLimits(budget_s=45.0)

    with pytest.raises(ModelFailed):
        await collect_pieces(RetryingModel(model, limits=limits, timing=fake_time.timing()), build_request())

    assert fake_time.sleeps == [20.5, 21.0]


@pytest.mark.parametrize("shown", [Say("half a sent"), Think("let me see")])
async def test_nothing_is_retried_after_the_first_piece(fake_time: FakeTime, shown: Say | Think) -> None:
    model = ScriptedModel([[shown, Fail(ModelFailed("cut", retryable=True))], "hello"])
    retrying = RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing())

    async with aclosing(retrying.generate(build_request())) as pieces:
        first = await anext(pieces)
        with pytest.raises(ModelFailed) as raised:
            await anext(pieces)

    assert first in (TextDelta("half a sent"), ReasoningDelta("let me see"))
    assert (raised.value.retryable, raised.value.partial) == (True, True)
    assert len(model.requests) == 1


async def test_a_request_that_is_too_long_goes_straight_to_the_caller(fake_time: FakeTime) -> None:
    model = ScriptedModel([[Fail(ContextLimitExceeded())], "hello"])

    with pytest.raises(ContextLimitExceeded):
        await collect_pieces(
            RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()), build_request()
        )

    assert len(model.requests) == 1


async def test_a_silent_model_is_given_up_and_asked_again() -> None:
    model = ScriptedModel([[Pause(asyncio.Event())], "hello"])
    retrying = RetryingModel(model, limits=ModelRetryLimits(first_token_timeout_s=0.02, first_backoff_s=0.0))

    assert join_text(await collect_pieces(retrying, build_request())) == "hello"
    assert model.unfinished == 1


async def test_a_stall_between_pieces_is_a_partial_failure() -> None:
    model = ScriptedModel([[Say("one"), Pause(asyncio.Event())]])
    retrying = RetryingModel(model, limits=ModelRetryLimits(idle_timeout_s=0.02))

    async with aclosing(retrying.generate(build_request())) as pieces:
        assert await anext(pieces) == TextDelta("one")
        with pytest.raises(ModelFailed, match=r"silent for 0\.02 s") as raised:
            await anext(pieces)

    assert (raised.value.retryable, raised.value.partial) == (True, True)


async def test_a_reply_that_only_drips_ends_at_the_reply_limit() -> None:
    model = ScriptedModel(["x" * 1_000_000], chunk_chars=1, chunk_pause_s=0.001)
    retrying = RetryingModel(model, limits=ModelRetryLimits(reply_timeout_s=1.0))

    with pytest.raises(ModelFailed, match="took too long") as raised:
        await collect_pieces(retrying, build_request())

    assert (raised.value.retryable, raised.value.partial) == (False, True)


async def test_a_model_that_always_has_more_ends_at_the_reply_limit(fake_time: FakeTime) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([[Say("one"), Pause(go_on), Say("two"), Pause(asyncio.Event())]])
    limits = ModelRetryLimits()
    retrying = RetryingModel(model, limits=limits, timing=fake_time.timing())

    async with aclosing(retrying.generate(build_request())) as pieces:
        assert await anext(pieces) == TextDelta("one")
        fake_time.now_s += limits.reply_timeout_s + 1
        go_on.set()
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(ModelFailed, match="took too long"):
            await anext(pieces)


async def test_an_endless_reply_ends_at_the_size_limit(fake_time: FakeTime) -> None:
    model = ScriptedModel(["x" * 200], chunk_chars=10)
    retrying = RetryingModel(model, limits=ModelRetryLimits(max_reply_chars=100), timing=fake_time.timing())

    with pytest.raises(ModelFailed, match="longer than 100") as raised:
        await collect_pieces(retrying, build_request())

    assert not raised.value.retryable


async def test_a_reply_without_its_finish_is_a_cut_reply(fake_time: FakeTime) -> None:
    model = ScriptedModel([[Cut()], "hello", [Say("half"), Cut()]])
    retrying = RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing())

    whole = await collect_pieces(retrying, build_request())
    with pytest.raises(ModelFailed, match="cut off before its end") as raised:
        await collect_pieces(retrying, build_request())

    assert isinstance(whole[-1], ReplyFinished)
    assert raised.value.partial


async def test_closing_the_reply_closes_the_reply_of_the_model(fake_time: FakeTime) -> None:
    model = ScriptedModel(["a long reply"], chunk_chars=2)

    async with aclosing(
        RetryingModel(model, limits=ModelRetryLimits(), timing=fake_time.timing()).generate(build_request())
    ) as pieces:
        await anext(pieces)

    assert model.unfinished == 1


class BreaksWhenCancelled:
    """An adapter whose clean-up fails, at the end of a cancelled call or of a reply that was cut."""

    traits = ScriptedModel([]).traits

    def __init__(self, *, after: int) -> None:
        self.after = after
        self.calls = 0
        self.waits = asyncio.Event()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        self.calls += 1
        for _ in range(self.after):
            yield TextDelta("a")
        try:
            self.waits.set()
            await asyncio.Event().wait()
        finally:
            raise ModelFailed("The connection is closed.", retryable=True, kind="unreachable")


@pytest.mark.parametrize("after", [0, 1])
async def test_a_cancellation_that_an_adapter_replaces_is_not_lost_in_a_retry(after: int) -> None:
    model = BreaksWhenCancelled(after=after)
    calling = asyncio.create_task(collect_pieces(RetryingModel(model, limits=ModelRetryLimits()), build_request()))
    await model.waits.wait()

    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await calling
    assert model.calls == 1


class FullModel:
    """Has all pieces of its reply at once, and never suspends."""

    traits = ScriptedModel([]).traits

    def __init__(self, *pieces: ModelPiece) -> None:
        self._pieces = pieces

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        for piece in self._pieces:
            yield piece


@pytest.mark.parametrize("piece", [TextDelta("x" * MAX_PIECE_CHARS), ReasoningDelta("x" * MAX_PIECE_CHARS)])
async def test_a_fast_provider_does_not_block_other_tasks(piece: TextDelta | ReasoningDelta) -> None:
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 0.0005  # what it takes to read a piece
        return now_s

    model = RetryingModel(
        FullModel(*[piece] * 400, ReplyFinished("stop", ModelUsage())),
        limits=ModelRetryLimits(),
        timing=RetryTiming(clock=clock),
    )
    read, longest_s = 0, 0.0

    async def beat() -> None:
        nonlocal longest_s
        seen_s = now_s
        while True:
            longest_s, seen_s = max(longest_s, now_s - seen_s), now_s
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    async for _ in model.generate(build_request()):
        read += 1
        now_s += 0.001  # what a reader takes for each
    beating.cancel()

    assert read == 401
    # The task that reads and the one that takes can each hold the loop once.
    assert longest_s < 3 * MAX_HELD_S


async def test_pieces_of_a_fast_model_are_joined() -> None:
    model = RetryingModel(ScriptedModel(["tok~ " * 200], chunk_chars=5), limits=ModelRetryLimits())

    pieces = await collect_pieces(model, build_request())

    assert join_text(pieces) == "tok~ " * 200
    # Without a wait there would be one for each piece, because the reader takes no time.
    assert len(pieces) < 50


async def test_the_parts_of_a_call_are_joined_and_split_by_themselves() -> None:
    long = f'{{"text": "{"0123456789" * 1_000}"}}'
    calls = [Call("read", '{"path": "a"}', "a"), Say("Now the second."), Call("read", long, "b")]
    model = RetryingModel(ScriptedModel([calls], chunk_chars=5), limits=ModelRetryLimits())

    pieces = await collect_pieces(model, build_request())

    assert join_calls(pieces) == [("read", "a", '{"path": "a"}'), ("read", "b", long)]
    parts = [piece for piece in pieces if isinstance(piece, ToolCallDelta)]
    assert len(parts) < 200
    assert max(len(part.arguments) for part in parts) <= MAX_PIECE_CHARS


async def test_an_endless_call_ends_at_the_size_limit() -> None:
    model = RetryingModel(ScriptedModel([[Call("read", "x" * 1_000)]]), limits=ModelRetryLimits(max_reply_chars=100))

    with pytest.raises(ModelFailed) as raised:
        await collect_pieces(model, build_request())

    assert raised.value.kind == "reply_too_long"


async def test_a_piece_that_comes_late_enough_does_not_wait() -> None:
    gates = [asyncio.Event() for _ in range(4)]
    steps = [step for gate in gates for step in (Pause(gate), Say("a"))]
    model = RetryingModel(ScriptedModel([steps]), limits=ModelRetryLimits())

    async with aclosing(model.generate(build_request())) as pieces:
        for gate in gates:
            gate.set()
            assert await anext(pieces) == TextDelta("a")
            await asyncio.sleep(2 * GATHER_S)


async def test_on_a_busy_event_loop_more_pieces_are_joined() -> None:
    async def keep_busy() -> None:
        while True:
            time.sleep(0.02)  # noqa: ASYNC251 - work of other turns
            await asyncio.sleep(0)

    busy = asyncio.create_task(keep_busy())
    pieces = await collect_pieces(
        RetryingModel(ScriptedModel(["tok~ " * 60], chunk_chars=5), limits=ModelRetryLimits()), build_request()
    )
    busy.cancel()

    # Each piece comes in an iteration of its own, later than the pieces of a slow model.
    assert join_text(pieces) == "tok~ " * 60
    assert len(pieces) < 30


async def test_text_that_has_arrived_is_yielded_before_its_failure() -> None:
    model = ScriptedModel([[Say("one"), Say("two"), Think("three"), Fail(ModelFailed("cut", retryable=True))]])
    seen: list[ModelPiece] = []

    with pytest.raises(ModelFailed, match="cut"):
        async for piece in RetryingModel(model, limits=ModelRetryLimits()).generate(build_request()):
            seen.append(piece)

    assert join_text(seen) == "onetwo"
    assert seen[-1] == ReasoningDelta("three")


async def test_a_long_piece_is_split() -> None:
    text = "0123456789" * 1_000
    model = RetryingModel(
        FullModel(TextDelta(text), ReasoningDelta(text), ReplyFinished("stop", ModelUsage())), limits=ModelRetryLimits()
    )

    pieces = [piece async for piece in model.generate(build_request())]

    for kind in (TextDelta, ReasoningDelta):
        parts = [piece.text for piece in pieces if isinstance(piece, kind)]
        assert "".join(parts) == text
        assert max(map(len, parts)) <= MAX_PIECE_CHARS

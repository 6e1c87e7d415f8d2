"""The contract of pair engines: what each driver does. A subclass provides the fixture `subject`."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, replace

import pytest

from everturn.execution.framing import FrameDecoder
from everturn.execution.messages import PIPE_FRAME_BYTES, Ready
from everturn.execution.profiles import ExecutionProfile
from everturn.execution.records import parse_message
from exec_supervisor.broker.engine import EngineDown, ImageMissing, PairEngine, PairEvent, PairPlan, SupervisorLine
from helpers.memory_pairs import MISSING_IMAGE

PLAN = PairPlan("0123456789abcdef", "default", ExecutionProfile(), "run_1", 4_000_000_000, 22_990)
LIMIT_S = 20.0


@dataclass(frozen=True)
class Subject:
    """`engine`, another broker's view of it, and a driver whose engine doesn't answer; `plan` can be started.

    `end_executor` kills a pair's executor, `load_left` is all that the engine holds for these pairs. `has_one_image`:
    both halves run in a container of the executor's image.
    """

    engine: PairEngine
    others: PairEngine
    down: PairEngine
    plan: PairPlan
    end_executor: Callable[[str], object]
    load_left: Callable[[], Collection[object]]
    has_one_image: bool = False


class PairEngineContract:
    async def test_the_line_of_a_started_pair_begins_with_the_supervisors_first_words(self, subject: Subject):
        async with started(subject) as line:
            assert isinstance(await read_first(line), Ready)

            images = await subject.engine.load_images(subject.plan.name)
            line.close_input()
            while await line.read():
                pass

        assert (images.executor == images.supervisor) is subject.has_one_image
        assert all((images.executor, images.supervisor))

    async def test_a_pair_whose_line_is_closed_ends_by_itself_and_is_then_removed(self, subject: Subject):
        async with started(subject) as line, watching(subject.engine) as events:
            await read_first(line)
            line.close_input()

            assert await wait_for(events, "pair_ended") == PairEvent(subject.plan.name, "pair_ended")
            assert [*await subject.engine.remove(subject.plan.name)] == []

        assert not subject.load_left()

    async def test_a_running_pair_is_removed_with_its_events_and_removal_can_be_repeated(self, subject: Subject):
        async with started(subject) as line, watching(subject.engine) as events:
            await read_first(line)

            problems = [await subject.engine.remove(subject.plan.name) for _ in range(2)]
            seen = [event.what for event in drain(events)]

            assert [[*found] for found in problems] == [[], []]
            assert "pair_ended" in seen
            async with asyncio.timeout(LIMIT_S):
                while await line.read():
                    pass
            assert not subject.load_left()

    async def test_a_pair_that_was_never_started_is_removed_at_once(self, subject: Subject):
        begun_s = time.monotonic()

        assert await remove(subject.engine, "fedcba9876543210") == []
        assert time.monotonic() - begun_s < LIMIT_S / 10

    async def test_the_end_of_an_executor_is_reported_even_after_an_interruption(self, subject: Subject):
        async with started(subject) as line:
            async with watching(subject.engine):
                await read_first(line)
            subject.end_executor(subject.plan.name)
            async with watching(subject.engine) as events:
                ended = await wait_for(events, "executor_ended")

        assert ended == PairEvent(subject.plan.name, "executor_ended", "137")

    @pytest.mark.parametrize("half", ["executor_image", "supervisor_image"])
    async def test_a_missing_image_fails_the_start_and_what_there_is_can_be_removed(self, subject: Subject, half: str):
        missing = "executor_image" if subject.has_one_image else half
        profile = subject.plan.profile.model_copy(update={missing: MISSING_IMAGE})

        with pytest.raises(ImageMissing):
            await subject.engine.start(replace(subject.plan, profile=profile))

        assert await remove(subject.engine, subject.plan.name) == []
        assert not subject.load_left()

    async def test_a_cancelled_start_leaves_nothing_that_cannot_be_removed(self, subject: Subject):
        starting = asyncio.create_task(subject.engine.start(subject.plan))
        await asyncio.sleep(0.02)
        starting.cancel()
        await asyncio.wait((starting,))

        assert await remove(subject.engine, subject.plan.name) == []
        assert not subject.load_left()
        if not starting.cancelled():
            starting.result().close()

    async def test_leftovers_of_every_broker_are_listed_and_removed_in_that_order(self, subject: Subject):
        async with started(subject):
            mine = await load_leftovers(subject.engine, subject.plan.name)
            other = await load_leftovers(subject.others, subject.plan.name)
            removed = [await subject.engine.remove_leftover(leftover) for leftover in mine]
            again = [await subject.engine.remove_leftover(leftover) for leftover in mine]

            assert not subject.load_left()

        assert {leftover.expires_s for leftover in mine} == {subject.plan.expires_s}
        assert ({entry.is_own for entry in mine}, {entry.is_own for entry in other}) == ({True}, {False})
        assert [replace(entry, is_own=True) for entry in other] == mine
        assert (set(removed), set(again)) == ({True}, {False})

    async def test_an_engine_that_does_not_answer_is_down_and_removal_reports_it(self, subject: Subject):
        down, name = subject.down, subject.plan.name

        for call in (down.start(subject.plan), down.load_images(name), down.load_leftovers()):
            with pytest.raises(EngineDown):
                await call
        with pytest.raises(EngineDown):
            async with down.watch():
                pass
        assert await down.remove(name)


@contextlib.asynccontextmanager
async def started(subject: Subject) -> AsyncIterator[SupervisorLine]:
    """A started pair, which is removed at the end."""
    try:
        line = await subject.engine.start(subject.plan)
        yield line
        line.close()
    finally:
        await remove(subject.engine, subject.plan.name)


async def remove(engine: PairEngine, name: str) -> list[str]:
    """As a broker does it: while it watches, and with a limit."""
    async with watching(engine), asyncio.timeout(LIMIT_S):
        return [*await engine.remove(name)]


@contextlib.asynccontextmanager
async def watching(engine: PairEngine) -> "AsyncIterator[asyncio.Queue[PairEvent]]":
    """The events from now on."""
    found: asyncio.Queue[PairEvent] = asyncio.Queue()

    async with engine.watch() as events:

        async def collect() -> None:
            async for event in events:
                found.put_nowait(event)

        collecting = asyncio.create_task(collect())
        yield found
        collecting.cancel()
        await asyncio.wait((collecting,))


async def wait_for(events: "asyncio.Queue[PairEvent]", what: str) -> PairEvent:
    async with asyncio.timeout(LIMIT_S):
        while (event := await events.get()).what != what:
            pass
    return event


def drain(events: "asyncio.Queue[PairEvent]") -> list[PairEvent]:
    return [events.get_nowait() for _ in range(events.qsize())]


async def read_first(line: SupervisorLine) -> object:
    """The supervisor's first frame."""
    decoder = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)
    async with asyncio.timeout(LIMIT_S):
        while data := await line.read():
            if frames := decoder.feed(data):
                assert isinstance(frames[0], dict)
                return parse_message(frames[0], Ready)
    raise AssertionError(line.errors or "the line ended")


async def load_leftovers(engine: PairEngine, pair: str) -> Sequence:
    return [leftover for leftover in await engine.load_leftovers() if leftover.pair == pair]

"""The contract of engines of remote runs: what each driver does. A subclass provides the fixture `subject`."""

import asyncio
import itertools
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from chat_proc.sandbox.launching import build_run_result
from chat_proc.sandbox.port import RunNotes, RunRequest, RunResult
from chat_proc.sandbox.remote.port import TASKS_AT_ONCE, EngineUnavailable, RemoteEngine, RemoteRun, TaskState
from chat_proc.sandbox.remote.recording import prepare_run
from everturn.execution.messages import Capability, RunLimits, ToolGrant

LIMIT_S = 40.0
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = RunLimits()
SLEEPS = "import time; print('begun', flush=True); time.sleep(60)"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Subject:
    """`engine`, and a driver whose engine doesn't answer."""

    engine: RemoteEngine
    down: RemoteEngine


class RemoteEngineContract:
    async def test_a_run_ends_and_has_its_result_until_it_is_discarded(self, subject: Subject):
        request, prepared = await prepare("print('hello')")

        task = await subject.engine.start(prepared)
        state = await wait_for_end(subject.engine, task)
        result = await collect(subject.engine, request)

        assert state.exit_code == 0
        assert result is not None and result.ok, result
        assert await collect(subject.engine, request) == result
        for _ in range(2):
            await subject.engine.discard(request.execution_id)
        assert await collect(subject.engine, request) is None
        assert not await load_left(subject.engine, request)

    async def test_a_repeated_start_returns_the_same_task(self, subject: Subject):
        request, prepared = await prepare(SLEEPS)

        tasks = {await subject.engine.start(prepared) for _ in range(3)}

        assert len(tasks) == 1
        assert await load_left(subject.engine, request) == tasks
        await subject.engine.stop(tasks.pop(), "the test is over")
        await subject.engine.discard(request.execution_id)

    async def test_a_repeated_start_changes_nothing_of_the_first(self, subject: Subject):
        request, first = await prepare("print(open('in.txt').read())", inputs={"in.txt": b"first"})
        _, later = await prepare(request.program, inputs={"in.txt": b"later"}, execution_id=request.execution_id)
        first = replace(first, start=replace(first.start, notes=RunNotes(NOW, "unknown", "left out")))

        task = await subject.engine.start(first)
        assert await subject.engine.start(later) == task
        await wait_for_end(subject.engine, task)

        assert await subject.engine.load_start(request.execution_id) == first.start != later.start
        await subject.engine.discard(request.execution_id)
        assert await subject.engine.load_start(request.execution_id) is None

    async def test_a_stopped_program_is_a_cancelled_one_and_a_stop_can_be_repeated(self, subject: Subject):
        request, prepared = await prepare(SLEEPS)
        task = await subject.engine.start(prepared)

        await subject.engine.stop(task, "a person cancelled it")
        await subject.engine.stop(task, "a person cancelled it again")
        state = await wait_for_end(subject.engine, task)
        await subject.engine.stop(task, "it has ended")

        assert "a person cancelled it" in state.reason
        # A task that is stopped while it boots may have no result.
        result = await collect(subject.engine, request)
        assert result is None or (result.error is not None and result.error.code == "cancelled")
        await subject.engine.discard(request.execution_id)

    async def test_tasks_that_nobody_knows_are_unknown_and_can_be_stopped_and_discarded(self, subject: Subject):
        strange = ["task/never", "task/nowhere"]

        assert await subject.engine.check(strange) == dict.fromkeys(strange, TaskState("unknown"))
        assert await subject.engine.check([]) == {}
        await subject.engine.stop(strange[0], "nobody knows it")
        await subject.engine.discard("never")
        assert await subject.engine.collect("never", LIMITS) is None
        with pytest.raises(ValueError, match="task"):
            await subject.engine.check([f"task/{number}" for number in range(TASKS_AT_ONCE + 1)])

    async def test_only_leftovers_of_the_given_age_are_listed(self, subject: Subject):
        request, prepared = await prepare(SLEEPS)
        task = await subject.engine.start(prepared)

        assert not [left for left in await subject.engine.load_leftovers(older_than_s=3600) if left.tasks == (task,)]
        await subject.engine.stop(task, "the test is over")
        await wait_for_end(subject.engine, task)

        assert await load_left(subject.engine, request) == set()
        await subject.engine.discard(request.execution_id)
        assert await load_left(subject.engine, request) is None

    async def test_a_run_that_could_call_tools_or_has_a_bad_id_is_not_started(self, subject: Subject):
        _, prepared = await prepare("pass")
        launch = prepared.launch

        for wrong in (
            replace(launch, capability=Capability((ToolGrant("web_tools.web_fetch"),))),
            replace(launch, execution_id="a/b"),
            replace(launch, execution_id="x" * 65),
        ):
            with pytest.raises(ValueError):
                await subject.engine.start(replace(prepared, launch=wrong))

    async def test_an_engine_that_does_not_answer_is_unavailable(self, subject: Subject):
        _, prepared = await prepare("pass")

        failures = await asyncio.gather(
            subject.down.start(prepared),
            subject.down.check(["task/1"]),
            subject.down.stop("task/1", "reason"),
            subject.down.collect("run_1", LIMITS),
            subject.down.load_start("run_1"),
            subject.down.discard("run_1"),
            subject.down.load_leftovers(older_than_s=0),
            return_exceptions=True,
        )

        assert {type(failure) for failure in failures} == {EngineUnavailable}, failures


async def prepare(program: str, **changes: object) -> tuple[RunRequest, RemoteRun]:
    """A request with an id of its own, and its run."""
    request = RunRequest(f"run-{os.getpid()}-{next(_numbers)}", "turn_1", program, (), timeout_s=20.0)
    request = replace(request, **changes)  # pyright: ignore[reportArgumentType] fields of a request
    prepared = await prepare_run(request, LIMITS)
    assert isinstance(prepared, RemoteRun), prepared
    return request, prepared


async def wait_for_end(engine: RemoteEngine, task: str) -> TaskState:
    async with asyncio.timeout(LIMIT_S):
        while (state := (await engine.check([task]))[task]).phase != "ended":  # noqa: ASYNC110 - an engine does not notify
            await asyncio.sleep(0.05)
    return state


async def collect(engine: RemoteEngine, request: RunRequest) -> RunResult | None:
    done = await engine.collect(request.execution_id, LIMITS)
    return None if done is None else build_run_result(request, LIMITS, done, ())


async def load_left(engine: RemoteEngine, request: RunRequest) -> set[str] | None:
    """The tasks of a run that is left over, or None."""
    found = {left.run_id: {*left.tasks} for left in await engine.load_leftovers(older_than_s=0)}
    return found.get(request.execution_id)

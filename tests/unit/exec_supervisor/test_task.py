"""A task without an engine: what it stores when there is no result, and what it says of its requests."""

import asyncio
import contextlib

import pytest
import urllib3

from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.messages import PIPE_FRAME_BYTES, Capability, Finished, InputsEnd, Launch, RunLimits
from everturn.execution.records import build_message, parse_message
from exec_supervisor.task.run import TaskFailed, load_line, play

LAUNCH = Launch("run-1", "pass", (), 5.0, RunLimits(), Capability(), "nonce")
LINE = b"".join(encode_frame(build_message(frame)) for frame in (LAUNCH, InputsEnd()))


@contextlib.asynccontextmanager
async def open_broken():
    raise OSError("no sandbox today")
    yield


@contextlib.asynccontextmanager
async def open_never():
    await asyncio.Event().wait()
    yield


@contextlib.asynccontextmanager
async def open_defective():
    raise ZeroDivisionError("a defect")
    yield


async def play_to_end(open_run, **changes) -> Finished:
    limits = {"ends_within_s": 20.0, "max_bytes": 1 << 20, **changes}
    frames = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True).feed(await play(LINE, open_run, **limits))
    return parse_message(frames[-1], Finished)


async def test_a_sandbox_that_does_not_start_is_the_result():
    finished = await play_to_end(open_broken)

    assert (finished.verdict, finished.detail) == ("not_started", "OSError: no sandbox today")


async def test_a_task_ends_itself_at_its_limit():
    finished = await play_to_end(open_never, ends_within_s=0.2)

    assert (finished.verdict, finished.detail) == ("died", "the task did not end within 0 s")


async def test_a_result_that_is_too_large_is_not_kept():
    finished = await play_to_end(open_broken, max_bytes=10)

    assert (finished.verdict, finished.detail) == ("died", "the result has more than 10 bytes")


async def test_a_defect_of_the_supervisor_is_the_result():
    finished = await play_to_end(open_defective)

    assert finished.verdict == "died"
    assert "defect" in finished.detail


@pytest.mark.parametrize("line", [b"", LINE[:10], encode_frame(build_message(InputsEnd())), b"\xff" * 10])
async def test_a_line_without_a_launch_is_refused(line: bytes):
    with pytest.raises(TaskFailed, match="does not begin with a launch"):
        await play(line, open_never, ends_within_s=5.0, max_bytes=1 << 20)


def test_a_signed_url_that_cannot_be_reached_is_not_in_the_error():
    with pytest.raises(TaskFailed) as failed:
        load_line(urllib3.PoolManager(retries=urllib3.Retry(0)), "http://127.0.0.1:9/line?X-Amz-Signature=secret")

    assert str(failed.value) == "the run's input can't be read: NewConnectionError"

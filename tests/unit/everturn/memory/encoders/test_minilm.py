"""The local encoder through its process, with the real weights."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from everturn.memory.embedder import DIMENSIONS, EmbedderUnavailable
from everturn.memory.encoders.minilm import MAX_TEXT_CHARS, MAX_TEXTS, NICENESS, MiniLmEmbedder


@pytest.fixture
async def embedder() -> AsyncIterator[MiniLmEmbedder]:
    embedder = MiniLmEmbedder()
    yield embedder
    await embedder.close()


def similarity(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def find_encoders() -> dict[int, int]:
    """The encoders that this process has started, with their niceness."""
    ours = Path("/proc/self/task").glob("*/children")
    pids = [int(pid) for children in ours for pid in children.read_text().split()]
    started = [pid for pid in pids if b"everturn.memory.encoders.minilm" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return {pid: os.getpriority(os.PRIO_PROCESS, pid) for pid in started}


async def wait_until_gone(pid: int) -> None:
    async with asyncio.timeout(30):
        while pid in find_encoders():  # noqa: ASYNC110 - nothing notifies of it
            await asyncio.sleep(0.05)


async def test_vectors_come_in_the_order_of_the_texts(embedder: MiniLmEmbedder) -> None:
    texts = ["a cat", "", "many words " * 2_000, "\ud800", "a kitten", "x" * MAX_TEXT_CHARS, "a cat"]

    vectors = await embedder.embed(texts)

    alone = [(await embedder.embed([text]))[0] for text in texts]
    assert [similarity(*pair) for pair in zip(vectors, alone, strict=True)] == pytest.approx([1.0] * 7, abs=1e-4)
    assert vectors[0] == pytest.approx(vectors[-1], abs=1e-5)
    assert 0.6 < similarity(vectors[0], vectors[4]) < 1
    assert await embedder.embed([]) == ()


async def test_a_short_call_runs_between_the_requests_of_a_long_one(embedder: MiniLmEmbedder) -> None:
    await embedder.embed(["start"])
    long = asyncio.create_task(embedder.embed(["many words " * MAX_TEXT_CHARS] * 5))
    await asyncio.sleep(0)

    await embedder.embed(["short"])

    assert not long.done()
    assert len(await long) == 5


async def test_the_process_has_one_thread_that_can_be_forked(embedder: MiniLmEmbedder) -> None:
    await embedder.embed(["a"])

    (pid,) = find_encoders()
    assert len(os.listdir(f"/proc/{pid}/task")) == 1


async def test_the_process_has_a_low_priority_and_ends_when_it_is_idle() -> None:
    embedder = MiniLmEmbedder(idle_s=0.3)
    assert find_encoders() == {}
    await embedder.embed(["a"])

    ((pid, niceness),) = find_encoders().items()
    assert niceness == os.getpriority(os.PRIO_PROCESS, 0) + NICENESS
    await wait_until_gone(pid)
    assert len(await embedder.embed(["again"])) == 1
    await embedder.close()
    assert find_encoders() == {}


async def test_a_process_that_was_killed_is_replaced(embedder: MiniLmEmbedder) -> None:
    await embedder.embed(["a"])
    (pid,) = find_encoders()
    os.kill(pid, signal.SIGKILL)
    await wait_until_gone(pid)

    with suppress(EmbedderUnavailable):  # if it is not noticed before the request
        await embedder.embed(["b"])
    assert len(await embedder.embed(["c"])) == 1


async def test_a_caller_that_gives_up_does_not_disturb_the_next(embedder: MiniLmEmbedder) -> None:
    impatient = asyncio.create_task(embedder.embed(["a"]))
    await asyncio.sleep(0.1)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)

    assert len(await embedder.embed(["b"])) == 1


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "print('no answer', flush=True)"])
async def test_an_encoder_that_does_not_work_is_unavailable(program: str) -> None:
    embedder = MiniLmEmbedder([sys.executable, "-c", program])

    with pytest.raises(EmbedderUnavailable):
        await embedder.embed(["a"])

    await embedder.close()


async def test_many_short_texts_are_several_requests(embedder: MiniLmEmbedder) -> None:
    vectors = await embedder.embed(["x"] * (2 * MAX_TEXTS + 1))

    assert len(vectors) == 2 * MAX_TEXTS + 1
    assert len(vectors[-1]) == DIMENSIONS


def test_the_service_imports_no_numpy() -> None:
    program = (
        "import sys; from everturn.memory.encoders.minilm import MiniLmEmbedder; MiniLmEmbedder();"
        "sys.exit('numpy' in sys.modules or 'tokenizers' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-P", "-c", program], check=False, timeout=50).returncode == 0

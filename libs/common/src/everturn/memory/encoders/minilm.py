"""The local encoder, all-MiniLM-L6-v2, in a process of its own with a low priority: turns come first.

The process starts with the first text and ends when it was idle for some minutes, so its libraries and model, some
140 MB, are in memory only while they are used. Texts are untrusted: each request is handled in a confined fork.
"""

import json
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence

from everturn.confinement.fork import ForkLimits, hide_process
from everturn.confinement.processes import ConfinedProcesses, run_answering
from everturn.core.errors import Unavailable
from everturn.memory.embedder import DIMENSIONS, EmbedderUnavailable, Vector

NAME = "minilm-l6-v2"
"""Vectors made with the published 32-bit weights have this name too: ours have a cosine of at least 0.996 with them, so
both can be compared, and what was indexed with them need not be indexed again."""
COMMAND = (sys.executable, "-I", "-m", "everturn.memory.encoders.minilm")
NICENESS = 10
"""On a busy machine, the encoder gets about a tenth of the CPU time that a turn gets. Searches wait for it too, so this
is not the lowest priority."""
IDLE_S = 300.0
"""Starting again costs the next search about half a second."""
MAX_TEXT_CHARS = 4_000
"""Far more than the 256 tokens that count, in any language."""
MAX_REQUEST_CHARS = 2 * MAX_TEXT_CHARS
"""Limit for one request. It takes up to half a second, and a search waits for the request before it."""
MIN_TEXT_CHARS = 80
"""A shorter text counts as this many, so that a request has at most a hundred."""
MAX_TEXTS = MAX_REQUEST_CHARS // MIN_TEXT_CHARS
LIMITS = ForkLimits(memory_bytes=512 * 2**20, cpu_s=30.0, wall_s=120.0, answer_bytes=4 * DIMENSIONS * MAX_TEXTS)

Encode = Callable[[Sequence[str]], Sequence[Vector]]


class MiniLmEmbedder:
    """Encodes in the order of the calls. Between two requests of a long call, a short call can run."""

    name = NAME
    lexical_only = False

    def __init__(self, command: Sequence[str] = COMMAND, *, idle_s: float = IDLE_S) -> None:
        self._processes = ConfinedProcesses(
            command, processes=1, limits=LIMITS, purpose="encodes texts for memory search", idle_s=idle_s
        )

    async def close(self) -> None:
        await self._processes.close()

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        vectors: list[Vector] = []
        for part in _split(texts):
            vectors += await self._encode(part)
        return tuple(vectors)

    async def _encode(self, texts: Sequence[str]) -> list[Vector]:
        try:
            result = await self._processes.request({}, json.dumps(texts).encode())
        except Unavailable as error:
            raise EmbedderUnavailable(error.detail) from error
        if result.ended != "answered" or len(result.answer) != 4 * DIMENSIONS * len(texts):
            raise EmbedderUnavailable("The local encoder failed.")
        return list(struct.iter_unpack(f"<{DIMENSIONS}f", result.answer))


def _split(texts: Sequence[str]) -> Iterator[list[str]]:
    """The beginning of each text, in parts of one request each."""
    part: list[str] = []
    chars = 0
    for text in texts:
        beginning = text[:MAX_TEXT_CHARS]
        cost = max(MIN_TEXT_CHARS, len(beginning))
        if chars + cost > MAX_REQUEST_CHARS:
            yield part
            part, chars = [], 0
        part.append(beginning)
        chars += cost
    if part:
        yield part


def answer(encode: Encode, request: bytes) -> bytes:
    """The vectors of a request's texts, one after the other."""
    vectors = encode(json.loads(request))
    return b"".join(struct.pack(f"<{DIMENSIONS}f", *vector) for vector in vectors)


def main() -> None:
    """Answer until the input ends."""
    os.nice(NICENESS)
    hide_process()
    # A process with threads can't be forked safely.
    os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
    from everturn.memory.encoders.minilm_model import load_minilm

    minilm = load_minilm()
    minilm.encode(["Load what is loaded with the first text."])
    run_answering(sys.stdin.buffer, sys.stdout.buffer, lambda _, data: answer(minilm.encode, data), LIMITS)


if __name__ == "__main__":
    main()

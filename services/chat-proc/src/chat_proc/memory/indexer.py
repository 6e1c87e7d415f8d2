"""Makes ended turns searchable, concurrently with the worker's turns and without blocking them.

Turns are claimed from a queue in the database, so a worker that dies meanwhile only delays them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.memory.snippets import build_snippets, find_attachments
from everturn.core.errors import NotFound, Unavailable
from everturn.core.failpoints import Failpoints
from everturn.core.loops import guarded
from everturn.core.metrics import SNIPPETS_INDEXED, TURNS_INDEXED
from everturn.files.model import Artifact
from everturn.memory.embedder import Embedder, EmbedderUnavailable, Vector
from everturn.memory.search import EmbeddedSnippet, IndexJob, Snippet, SnippetIndex
from everturn.timeline.blocks import Block

_log = structlog.get_logger(__name__)

MAX_TRIES = 5
"""After this many attempts a turn is given up; the last attempt does without vectors if the encoder is unavailable."""
SWEEP_EVERY_S = 5.0
"""How long a turn can wait if it was ended by another worker, or by one that died."""
RETRY_S = 2.0
JOB_TIMEOUT_S = 120.0
BUSY_REST = 4
"""While several turns run, the indexer rests this many times as long as it worked, so encoding takes at most a fifth
of one processor from them. That is enough for about six turns of 1,000 characters a second."""
MAX_REST_S = 10.0
REST_CHECK_S = 0.25
"""How soon it goes on when the turns have ended."""
MAX_FILES = 20
"""Files of one turn of which the beginning is indexed."""


class Indexer:
    """One of the worker's tasks. It indexes one turn at a time, and slowly while `is_busy`: turns come first."""

    def __init__(
        self,
        *,
        index: SnippetIndex,
        embedder: Embedder,
        attachments: AttachmentReader,
        failpoints: Failpoints,
        is_busy: Callable[[], bool] = lambda: False,
        sweep_every_s: float = SWEEP_EVERY_S,
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._attachments = attachments
        self._failpoints = failpoints
        self._is_busy = is_busy
        self._sweep_every_s = sweep_every_s
        self._draining = asyncio.Event()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """A turn may have ended."""
        self._rung.set()

    def drain(self) -> None:
        """Claim no more turns. The current one may still be saved; if not, another worker indexes it."""
        self._draining.set()
        self._rung.set()

    async def run(self) -> None:
        """Run until drained or cancelled."""
        while not self._draining.is_set():
            self._rung.clear()
            worked = False
            began_s = time.monotonic()
            try:
                with guarded("indexer_queue", passing=(Unavailable,)) as guard:
                    worked = await self._index_next()
            except Unavailable as error:
                _log.warning("Could not reach the index", error=str(error))
                await self._wait(RETRY_S)
                continue
            if guard.error is not None:
                await self._wait(RETRY_S)
            elif not worked:
                await self._wait(self._sweep_every_s)
            elif self._is_busy():
                await self._rest(min(MAX_REST_S, BUSY_REST * (time.monotonic() - began_s)))

    async def _rest(self, limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        while self._is_busy() and not self._draining.is_set() and (left_s := end_s - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, REST_CHECK_S)):
                    await self._draining.wait()

    async def _wait(self, limit_s: float) -> None:
        if self._draining.is_set():
            return
        try:
            async with asyncio.timeout(limit_s):
                await self._rung.wait()
        except TimeoutError:
            return

    async def _index_next(self) -> bool:
        """Claim one turn and index it; returns False if none waits."""
        self._failpoints.hit("index.before_claim")
        jobs = await self._index.claim_turns(1)
        for job in jobs:
            await self._index_one(job)
        return bool(jobs)

    async def _index_one(self, job: IndexJob) -> None:
        """Index one turn. If that fails it is retried later, and finally given up."""
        try:
            with guarded("indexer_turn", passing=(Unavailable, TimeoutError), turn_id=job.turn_id, tries=job.tries):
                async with asyncio.timeout(JOB_TIMEOUT_S):
                    await self._give_up(job) if job.tries > MAX_TRIES else await self._work(job)
        except (Unavailable, TimeoutError) as error:
            _log.warning("Could not index a turn", turn_id=job.turn_id, tries=job.tries, error=str(error))

    async def _give_up(self, job: IndexJob) -> None:
        _log.error("Gave up indexing a turn", turn_id=job.turn_id, conversation_id=job.conversation_id, tries=job.tries)
        TURNS_INDEXED.labels("given_up").inc()
        await self._index.save_snippets(job.principal, job, [], encoder=self._embedder.name)

    async def _work(self, job: IndexJob) -> None:
        blocks = await self._index.load_texts(job.principal, job.conversation_id, job.turn_id)
        snippets = build_snippets(blocks, await self._load_files(blocks))
        embedded = await self._embed(snippets, without=job.tries >= MAX_TRIES)
        saved = await self._index.save_snippets(job.principal, job, embedded, encoder=self._embedder.name)
        TURNS_INDEXED.labels("indexed" if saved else "gone").inc()
        SNIPPETS_INDEXED.inc(len(embedded) if saved else 0)

    async def _load_files(self, blocks: Sequence[Block]) -> dict[str, str]:
        texts = [artifact for artifact in find_attachments(blocks) if self._attachments.has_text(artifact)]
        return {artifact.ref: await self._load_file(artifact) for artifact in texts[:MAX_FILES]}

    async def _load_file(self, artifact: Artifact) -> str:
        """The beginning of a text; empty if it was removed meanwhile."""
        try:
            text, _ = await self._attachments.load_beginning(artifact)
        except NotFound:
            _log.warning("Attachment is missing", ref=artifact.ref)
            return ""
        return text

    async def _embed(self, snippets: Sequence[Snippet], *, without: bool) -> list[EmbeddedSnippet]:
        """`without`: index words only if the encoder is still unavailable."""
        texts = [f"{snippet.anchors}\n{snippet.text}".strip() for snippet in snippets]
        vectors: Sequence[Vector | None]
        try:
            vectors = await self._embedder.embed(texts)
        except EmbedderUnavailable as error:
            if not without:
                raise
            _log.warning("Could not embed; indexed for lexical search only", error=str(error))
            vectors = [None] * len(texts)
        return [EmbeddedSnippet(*pair) for pair in zip(snippets, vectors, strict=True)]

"""Makes ended turns searchable, concurrently with the worker's turns and without blocking them.

Turns are claimed from a queue in the database, so a worker that dies meanwhile only delays them.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

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
STEP_TIMEOUT_S = 120.0
"""Limit for encoding the texts of some turns and saving them, and for each other step."""
MAX_TURNS = 8
"""How many turns are indexed together. The encoder needs 12 ms for each request, whatever its size."""
MAX_CHARS = 8_000
"""Texts of several turns are encoded together up to this length, about one request to the local encoder."""
GATHER_S = 0.25
"""How long the indexer waits for further ends of turns, and for the next turn of the same person to begin."""
FIRST_REST_S = 2.0
"""How long it then waits while turns run. What was said a moment ago is still part of what the model reads."""
BUSY_REST = 4
"""While turns run, the indexer rests this many times as long as it worked, so encoding takes at most a fifth of one
processor from them. That is enough for about nine turns of 1,000 characters a second."""
MAX_REST_S = 10.0
REST_CHECK_S = 0.25
"""How soon it goes on when the turns have ended."""
MAX_FILES = 20
"""Files of one turn of which the beginning is indexed."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A claimed turn with its texts."""

    job: IndexJob
    snippets: Sequence[Snippet]

    @property
    def texts(self) -> list[str]:
        return [f"{snippet.anchors}\n{snippet.text}".strip() for snippet in self.snippets]


class Indexer:
    """One of the worker's tasks. It indexes a few turns at a time, and slowly while `is_busy`: turns come first."""

    def __init__(
        self,
        *,
        index: SnippetIndex,
        embedder: Embedder,
        attachments: AttachmentReader,
        failpoints: Failpoints,
        is_busy: Callable[[], bool] = lambda: False,
        sweep_every_s: float = SWEEP_EVERY_S,
        gather_s: float = GATHER_S,
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._attachments = attachments
        self._failpoints = failpoints
        self._is_busy = is_busy
        self._sweep_every_s = sweep_every_s
        self._gather_s = gather_s
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
            elif worked:
                await self._rest(min(MAX_REST_S, BUSY_REST * (time.monotonic() - began_s)))
            else:
                await self._wait(self._sweep_every_s)
                await self._pause(self._gather_s)
                await self._rest(FIRST_REST_S)

    async def _rest(self, limit_s: float) -> None:
        """Wait while turns run."""
        end_s = time.monotonic() + limit_s
        while self._is_busy() and not self._draining.is_set() and (left_s := end_s - time.monotonic()) > 0:
            await self._pause(min(left_s, REST_CHECK_S))

    async def _pause(self, limit_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
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
        """Claim some turns and index them; returns False if none waits."""
        self._failpoints.hit("index.before_claim")
        jobs = await self._index.claim_turns(MAX_TURNS)
        # What failed before is indexed alone, because it can be what made the others fail.
        await self._index_together([job for job in jobs if job.tries == 1])
        for job in jobs:
            if job.tries > MAX_TRIES:
                async with self._attempt(job):
                    await self._give_up(job)
            elif job.tries > 1:
                await self._index_together([job])
        return bool(jobs)

    async def _index_together(self, jobs: Sequence[IndexJob]) -> None:
        loaded: list[_Loaded] = []
        for job in jobs:
            async with self._attempt(job):
                blocks = await self._index.load_texts(job.principal, job.conversation_id, job.turn_id)
                loaded.append(_Loaded(job, build_snippets(blocks, await self._load_files(blocks))))
            if sum(len(text) for each in loaded for text in each.texts) >= MAX_CHARS:
                await self._embed_and_save(loaded)
                loaded = []
        if loaded:
            await self._embed_and_save(loaded)

    async def _embed_and_save(self, turns: Sequence[_Loaded]) -> None:
        async with self._attempt(*(turn.job for turn in turns)):
            vectors = iter(
                await self._embed(
                    [text for turn in turns for text in turn.texts],
                    without=all(turn.job.tries >= MAX_TRIES for turn in turns),
                )
            )
            for turn in turns:
                await self._save(turn.job, [EmbeddedSnippet(snippet, next(vectors)) for snippet in turn.snippets])

    async def _save(self, job: IndexJob, snippets: Sequence[EmbeddedSnippet]) -> None:
        async with self._attempt(job):
            saved = await self._index.save_snippets(job.principal, job, snippets, encoder=self._embedder.name)
            TURNS_INDEXED.labels("indexed" if saved else "gone").inc()
            SNIPPETS_INDEXED.inc(len(snippets) if saved else 0)

    @asynccontextmanager
    async def _attempt(self, *jobs: IndexJob) -> AsyncGenerator[None]:
        """A step of indexing these turns. If it fails they are indexed later, and finally given up."""
        turn_ids, tries = [job.turn_id for job in jobs], max(job.tries for job in jobs)
        try:
            with guarded("indexer_turn", passing=(Unavailable, TimeoutError), turn_ids=turn_ids, tries=tries):
                async with asyncio.timeout(STEP_TIMEOUT_S):
                    yield
        except (Unavailable, TimeoutError) as error:
            _log.warning("Could not index turns", turn_ids=turn_ids, tries=tries, error=str(error))

    async def _give_up(self, job: IndexJob) -> None:
        _log.error("Gave up indexing a turn", turn_id=job.turn_id, conversation_id=job.conversation_id, tries=job.tries)
        TURNS_INDEXED.labels("given_up").inc()
        await self._index.save_snippets(job.principal, job, [], encoder=self._embedder.name)

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

    async def _embed(self, texts: Sequence[str], *, without: bool) -> Sequence[Vector | None]:
        """`without`: index words only if the encoder is still unavailable."""
        try:
            return await self._embedder.embed(texts)
        except EmbedderUnavailable as error:
            if not without:
                raise
            _log.warning("Could not embed; indexed for lexical search only", error=str(error))
            return [None] * len(texts)

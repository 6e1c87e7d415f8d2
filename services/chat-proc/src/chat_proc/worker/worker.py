"""A worker's lifecycle from ready to exit: on SIGTERM it stops claiming and hands over its turns in time. On SIGUSR1 it
logs what its turns do."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import structlog

from chat_proc.agent.kit import BundleKit
from chat_proc.bundles.versions import BundleLibrary
from chat_proc.knowledge.collections import CollectionIndexer
from chat_proc.memory.indexer import Indexer
from chat_proc.worker.bundle_operations import OperationRunner
from chat_proc.worker.heartbeat import Heartbeat
from chat_proc.worker.loop import ClaimLoop
from chat_proc.worker.presence import PresenceTask
from chat_proc.worker.retention import RetentionJob
from chat_proc.worker.run_watch import RunWatch
from chat_proc.worker.sweeper import Sweeper
from chat_proc.worker.trimming import StreamTrimmer
from everturn.core.cancellation import end_tasks
from everturn.core.errors import Unavailable
from everturn.core.loops import run_guarded

_log = structlog.get_logger(__name__)

DEADLINE_S = 30.0
"""From SIGTERM to exit."""
MARGIN_S = 8.0
"""Reserved for releasing interrupted turns."""


class Worker:
    """Owns the tasks of one worker process."""

    def __init__(
        self,
        claim_loop: ClaimLoop,
        heartbeat: Heartbeat,
        sweeper: Sweeper,
        indexer: Indexer,
        retention: RetentionJob,
        *,
        trimmer: StreamTrimmer,
        presence: PresenceTask,
        bundles: BundleLibrary[BundleKit],
        operations: OperationRunner,
        watch: RunWatch,
        collections: CollectionIndexer | None = None,
        run_battery: Callable[[], Awaitable[None]] | None = None,
        deadline_s: float = DEADLINE_S,
        margin_s: float = MARGIN_S,
    ) -> None:
        self._claim_loop = claim_loop
        self._heartbeat = heartbeat
        self._sweeper = sweeper
        self._indexer = indexer
        self._retention = retention
        self._trimmer = trimmer
        self._presence = presence
        self._bundles = bundles
        self._operations = operations
        self._watch = watch
        self._collections = collections
        self._run_battery = run_battery
        self._deadline_s = deadline_s
        self._margin_s = margin_s
        self._stopping = asyncio.Event()
        self._claims = False

    async def check_claims(self) -> None:
        """Raise Unavailable unless turns are being claimed."""
        if not self._claims:
            raise Unavailable(
                "Draining: not accepting new turns."
                if self._stopping.is_set()
                else "Starting: not accepting turns yet."
            )

    def stop(self) -> None:
        """Begin the drain."""
        self._claims = False
        self._stopping.set()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Run until drained. `on_ready` is called once turns are being claimed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGUSR1, self._heartbeat.log_turns)
        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(run_guarded("heartbeat", self._heartbeat.run))
            sweeping = tasks.create_task(run_guarded("sweeper", self._sweeper.run))
            indexing = tasks.create_task(run_guarded("indexer", self._indexer.run))
            expiring = tasks.create_task(run_guarded("retention", self._retention.run))
            trimming = tasks.create_task(run_guarded("trimmer", self._trimmer.run))
            reporting = tasks.create_task(run_guarded("presence", self._presence.run))
            publishing = tasks.create_task(run_guarded("bundles", self._bundles.run))
            operating = tasks.create_task(run_guarded("bundle_operations", self._operations.run))
            watching = tasks.create_task(run_guarded("detached_runs", self._watch.run))
            building = None
            if self._collections is not None:
                building = tasks.create_task(run_guarded("collections", self._collections.run))
            testing = None
            if self._run_battery is not None:
                testing = tasks.create_task(run_guarded("battery_schedule", self._run_battery))
            claiming = tasks.create_task(self._claim_loop.run())
            self._claims = not self._stopping.is_set()
            await self._bundles.wait_published()
            on_ready()
            await self._stopping.wait()
            _log.info("Worker is draining", deadline_s=self._deadline_s)
            sweeping.cancel()
            expiring.cancel()
            trimming.cancel()
            for task in (building, testing):
                if task is not None:
                    task.cancel()
            self._indexer.drain()
            self._claim_loop.drain()
            self._operations.drain()
            await asyncio.wait({claiming, operating}, timeout=self._deadline_s - self._margin_s)
            operating.cancel()
            self._claim_loop.interrupt()
            await asyncio.wait({claiming}, timeout=self._margin_s)
            await end_tasks(watching)
            await self._watch.close()
            reporting.cancel()
            publishing.cancel()
            beating.cancel()
            indexing.cancel()
            claiming.cancel()

"""What a server says of itself and of what it needs, and what to do about what is wrong there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from everturn_client.answers import Answer

REMEDIES: Final[Mapping[str, str]] = {
    "postgres": "look at the Postgres server, and at DATABASE_URL of the ingress; nothing is lost meanwhile",
    "redis": "look at the Redis server, and at REDIS_URL of the ingress; the database has everything",
    "postgres disk": "give the Postgres server more disk space; messages are refused until it has some",
    "redis memory": "raise maxmemory of the Redis server; close to it new messages are refused",
    "objects": "look at the file store that OBJECTS_URL names, its keys and its free space",
    "antivirus": "start clamd, or set CLAMD_URL; until then messages with files are refused",
    "file checks": "restart the ingress; its log says why the process that looks into files does not start",
}
OTHERWISE: Final = "look at the ingress's log"


class PartState(Answer):
    """One thing that the ingress needs."""

    ok: bool
    detail: str = ""


class BatteryState(Answer):
    """Attempts to escape from a worker's sandbox that were denied."""

    held: int
    total: int


class WorkerState(Answer):
    """One worker; `sandbox` is empty where it runs no programs."""

    id: str
    sandbox: str
    battery: BatteryState | str
    slots: int


class ServerState(Answer):
    """The body of `/readyz`, of this version of the server or a later one."""

    status: str
    parts: Mapping[str, PartState]
    workers: tuple[WorkerState, ...] | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact. `remedy` says what to do and is empty when all is well."""

    name: str
    fact: str
    remedy: str = ""


def find_facts(state: ServerState) -> list[Finding]:
    """All that the server told, part by part, and its workers."""
    parts = [_find_part(name, part) for name, part in state.parts.items()]
    return [*parts, _find_workers(state.workers), *_find_sandboxes(state.workers or ())]


def _find_part(name: str, part: PartState) -> Finding:
    if part.ok:
        return Finding(name, part.detail or "answers")
    return Finding(name, part.detail or "does not answer", REMEDIES.get(name, OTHERWISE))


def _find_workers(workers: tuple[WorkerState, ...] | None) -> Finding:
    if workers is None:
        return Finding("workers", "nobody knows which there are", "see redis: workers tell of themselves there")
    if not workers:
        remedy = "start a worker with the same DATABASE_URL and REDIS_URL; its log says why one does not start"
        return Finding("workers", "none is there: messages are accepted and wait", remedy)
    slots = sum(worker.slots for worker in workers)
    return Finding("workers", f"{len(workers)} with {slots} slots: so many turns run at once")


def _find_sandboxes(workers: tuple[WorkerState, ...]) -> list[Finding]:
    return [_find_sandbox(worker) for worker in workers]


def _find_sandbox(worker: WorkerState) -> Finding:
    name = f"worker {worker.id}"
    if not worker.sandbox:
        return Finding(
            name, "runs no programs; its log says why, as `no_sandbox`, unless EXECUTION_MODE=off wants it so"
        )
    if isinstance(worker.battery, BatteryState) and worker.battery.held < worker.battery.total:
        fact = f"{worker.sandbox} held only {worker.battery.held} of {worker.battery.total} attempts to escape"
        return Finding(name, fact, "set EXECUTION_MODE to another launcher, or off, and report this")
    return Finding(name, f"runs programs in {worker.sandbox}")

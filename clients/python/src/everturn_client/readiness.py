"""A server's report about itself and its dependencies, and remedies for problems."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from everturn_client.answers import Answer

REMEDIES: Final[Mapping[str, str]] = {
    "postgres": "check the Postgres server and the ingress's DATABASE_URL; no accepted message is lost",
    "redis": "check the Redis server and the ingress's REDIS_URL; nothing is lost: Postgres has everything",
    "postgres_disk": "give the Postgres server more disk space; until then messages are rejected",
    "redis memory": "raise maxmemory of the Redis server; near that limit new messages are rejected",
    "objects": "check the object store that OBJECTS_URL names, its credentials and its free space",
    "antivirus": "start clamd, or set CLAMD_URL; until then messages with files are rejected",
    "file checks": "restart the ingress; its log says why the process that checks files does not start",
}
OTHERWISE: Final = "check the ingress's log"


class PartState(Answer):
    """The state of one dependency of the ingress."""

    ok: bool
    detail: str = ""


class BatteryState(Answer):
    """Escape attempts from a worker's sandbox: `held` of `total` were denied."""

    held: int
    total: int


class WorkerState(Answer):
    """One worker; `sandbox` is empty if it runs no programs."""

    id: str
    sandbox: str
    battery: BatteryState | str
    slots: int


class ServerState(Answer):
    """The body of `/readyz`, from this version of the server or a later one."""

    status: str
    parts: Mapping[str, PartState]
    workers: tuple[WorkerState, ...] | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact. `remedy` says what to do and is empty if there is no problem."""

    name: str
    fact: str
    remedy: str = ""


def find_facts(state: ServerState) -> list[Finding]:
    """One finding per part of the server, then its workers and their sandboxes."""
    parts = [_find_part(name, part) for name, part in state.parts.items()]
    return [*parts, _find_workers(state.workers), *_find_sandboxes(state.workers or ())]


def _find_part(name: str, part: PartState) -> Finding:
    if part.ok:
        return Finding(name, part.detail or "answers")
    return Finding(name, part.detail or "does not respond", REMEDIES.get(name, OTHERWISE))


def _find_workers(workers: tuple[WorkerState, ...] | None) -> Finding:
    if workers is None:
        return Finding("workers", "the list of workers can't be read", "fix Redis first: workers register there")
    if not workers:
        remedy = "start a worker with the same DATABASE_URL and REDIS_URL; if it does not start, its log says why"
        return Finding("workers", "none is running: messages are accepted but wait in the queue", remedy)
    slots = sum(worker.slots for worker in workers)
    return Finding("workers", f"{len(workers)} with {slots} slots: up to {2 * slots} turns run at once")


def _find_sandboxes(workers: tuple[WorkerState, ...]) -> list[Finding]:
    return [_find_sandbox(worker) for worker in workers]


def _find_sandbox(worker: WorkerState) -> Finding:
    name = f"worker {worker.id}"
    if not worker.sandbox:
        why = "runs no programs; unless EXECUTION_MODE=off is set, its log gives the reason (`No sandbox is available`)"
        return Finding(name, why)
    if isinstance(worker.battery, BatteryState) and worker.battery.held < worker.battery.total:
        fact = f"{worker.sandbox} denied only {worker.battery.held} of {worker.battery.total} escape attempts"
        return Finding(name, fact, "set EXECUTION_MODE to another launcher or to off, and report this")
    return Finding(name, f"runs programs in {worker.sandbox}")

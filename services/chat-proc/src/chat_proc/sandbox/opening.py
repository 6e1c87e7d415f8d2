"""Chooses the launcher, with a reason: the first one that works here, or none.

There is no fallback to unconfined runs, and an explicitly configured launcher is never replaced by another.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from chat_proc.sandbox.containers import (
    BrokerAddress,
    BrokerUnreachable,
    build_unseen_sandbox,
    is_temporary,
    open_container_sandbox,
)
from chat_proc.sandbox.launching import TRIAL, SupervisedSandbox
from chat_proc.sandbox.local_supervisor import SANDBOX_UIDS
from chat_proc.sandbox.network import find_network_fault
from chat_proc.sandbox.pool import WarmPool
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.remote.absent import build_absent_sandbox
from chat_proc.sandbox.remote.port import EngineNotReady, EngineUnavailable
from chat_proc.sandbox.supervised import SupervisorFailed
from chat_proc.settings import ExecutionMode, LauncherName
from everturn.core.cancellation import end_tasks
from everturn.core.loops import run_guarded
from everturn.execution.messages import RunLimits, UidRange
from everturn.execution.profiles import DEFAULT_PROFILE, LOCAL_ENGINE, ExecutionProfile, Profiles
from everturn.queue.model import BatteryOutcome

_log = structlog.get_logger(__name__)

BROKER_START_TIMEOUT_S: Final = 10.0
"""How long a broker that starts together with the worker has for its first reply."""

TRIALS_S: Final = 120.0
"""For the first boots of all profiles of a worker, which is not ready before. An image that can't be pulled delays one
by as long as a broker waits for it. With the trial of the launcher, which can take as long, it stays below the startup
probe of workers on Kubernetes."""
TRIALS_AT_ONCE: Final = 2
"""Each can take a processor for seconds, and fails if others take it. What has not begun in time is offered."""

_PAUSE_S: Final = 0.25


def _build_default() -> Profiles:
    return {DEFAULT_PROFILE: ExecutionProfile()}


CheckReady = Callable[[RunLimits], Awaitable[None]]
"""Raises EngineUnavailable, or EngineNotReady if an engine can't run programs with these limits."""


@dataclass(frozen=True, slots=True)
class ExecutionChoice:
    """The operator's settings for running programs. `broker` is None if no address is set.

    `offered` are the `profiles` that the code tool may use; the first is the default of calls that name none.
    `elsewhere` verifies the engines of profiles that don't run on the launcher of this worker.
    """

    mode: ExecutionMode
    broker: BrokerAddress | None
    python: Path | None
    profiles: Profiles
    offered: Profiles = field(default_factory=_build_default)
    elsewhere: Mapping[str, CheckReady] = field(default_factory=dict[str, CheckReady])
    uids: UidRange = SANDBOX_UIDS
    broker_wait_s: float = BROKER_START_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class OpenedSandbox:
    """A launcher, and the reason for this choice as one sentence. `battery` is None if it was not run.

    `profiles` are the offered ones that work here, with their limits. `silence` says why the launcher could not be
    shown to work yet; it is empty once it was.
    """

    sandbox: SupervisedSandbox
    why: str
    battery: BatteryOutcome | None = None
    profiles: Profiles = field(default_factory=_build_default)
    silence: str = ""


@contextlib.asynccontextmanager
async def open_sandbox(choice: ExecutionChoice) -> AsyncGenerator[OpenedSandbox | SandboxUnavailable]:
    """The launcher that works on this machine, or why there is none. Warm supervisors end when the block exits.

    Without a launcher, programs can still run elsewhere.
    """
    try:
        elsewhere = await _find_elsewhere(choice)
        opened = await _open_here(choice, elsewhere)
    except SandboxUnavailable as unavailable:
        _log.warning("No sandbox is available", mode=choice.mode, reason=unavailable.reason, remedy=unavailable.remedy)
        yield unavailable
        return
    working = {**opened.profiles, **elsewhere}
    opened = replace(opened, profiles={name: working[name] for name in choice.offered if name in working})
    _log.info("Chose the sandbox", launcher=opened.sandbox.posture.launcher, why=opened.why)
    async with _keep_warm(opened) as warm:
        yield warm


async def _find_elsewhere(choice: ExecutionChoice) -> Profiles:
    """The offered profiles of engines that can run them; an engine that does not answer now may do so later.

    Raises SandboxUnavailable if the first profile can't be used.
    """
    found: dict[str, ExecutionProfile] = {}
    for name, profile in choice.offered.items():
        if profile.engine == LOCAL_ENGINE:
            continue
        try:
            if (check := choice.elsewhere.get(profile.engine)) is None:
                raise EngineNotReady(f"{profile.engine} is not configured (ECS_CLUSTER).")
            await check(profile.limits)
        except EngineNotReady as error:
            _log.error("Execution profile can't be used", profile=name, error=str(error))
            if name == next(iter(choice.offered)):
                reason = f"The execution profile {name!r}, first of CODE_PROFILES, can't be used: {error}"
                raise SandboxUnavailable(reason) from error
            continue
        except EngineUnavailable as silent:
            _log.warning("The engine of an execution profile does not answer", profile=name, error=str(silent))
        found[name] = profile
    return found


async def _open_here(choice: ExecutionChoice, elsewhere: Profiles) -> OpenedSandbox:
    """The launcher with its profiles; none if only profiles `elsewhere` work. Raises SandboxUnavailable."""
    here = {name: profile for name, profile in choice.offered.items() if profile.engine == LOCAL_ENGINE}
    try:
        if not here:
            raise SandboxUnavailable("All profiles of CODE_PROFILES run elsewhere.")
        return await _try_profiles(await _open(choice), here)
    except SandboxUnavailable as unavailable:
        if not elsewhere:
            raise
        return OpenedSandbox(build_absent_sandbox(unavailable), str(unavailable), profiles={})


async def _open(choice: ExecutionChoice) -> OpenedSandbox:
    match choice.mode:
        case "off":
            raise SandboxUnavailable("Running programs is switched off (EXECUTION_MODE=off).")
        case "auto":
            return await _open_first(choice)
        case launcher:
            opened = await LAUNCHERS[launcher](choice)
            return replace(opened, why=f"EXECUTION_MODE={launcher}; {opened.why}")


async def _open_first(choice: ExecutionChoice) -> OpenedSandbox:
    """Open the first launcher that works. Raises SandboxUnavailable with the reasons of all and the last one's
    remedy."""
    failed: list[str] = []
    reason, remedy = "", ""
    for launcher, open_launcher in LAUNCHERS.items():
        try:
            opened = await open_launcher(choice)
        except SandboxUnavailable as unavailable:
            reason, remedy = unavailable.reason, unavailable.remedy
            failed.append(f"no {launcher}: {reason}")
        else:
            return replace(opened, why="; ".join((*failed, opened.why)))
    raise SandboxUnavailable(f"{reason} ({'; '.join(failed[:-1])})", remedy)


async def _open_containers(choice: ExecutionChoice) -> OpenedSandbox:
    """Containers through the broker. If they were selected by name, a broker that is unavailable now may start later;
    until then runs fail with the reason."""
    if choice.broker is None:
        raise SandboxUnavailable(
            "BROKER_URL is not set; `make run` starts a broker if there is a container engine with the images"
        )
    try:
        sandbox = await _wait_for_broker(choice.broker, choice.broker_wait_s)
    except BrokerUnreachable as silent:
        if choice.mode == "auto":
            raise SandboxUnavailable(str(silent)) from silent
        return OpenedSandbox(build_unseen_sandbox(choice.broker), str(silent), silence=str(silent))
    return OpenedSandbox(sandbox, f"the broker at {choice.broker.url} answers")


async def _wait_for_broker(broker: BrokerAddress, wait_s: float) -> SupervisedSandbox:
    """Start a trial pair as soon as the broker is reachable. Raises BrokerUnreachable, SandboxUnavailable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        try:
            return await open_container_sandbox(broker, busy_wait_s=max(0.0, deadline - loop.time()))
        except BrokerUnreachable:
            if loop.time() > deadline:
                raise
        await asyncio.sleep(_PAUSE_S)


OpenLocal = Callable[[Path, Profiles, UidRange], Awaitable[SupervisedSandbox]]


async def _open_local(name: LauncherName, open_launcher: OpenLocal, choice: ExecutionChoice) -> OpenedSandbox:
    """A launcher of this machine, which needs an environment for programs."""
    if choice.python is None:
        raise SandboxUnavailable("SANDBOX_PYTHON is not set.", "make setup")
    sandbox = await open_launcher(choice.python, choice.profiles, choice.uids)
    return OpenedSandbox(sandbox, f"{name} works on this machine")


LAUNCHERS: Final[Mapping[LauncherName, Callable[[ExecutionChoice], Awaitable[OpenedSandbox]]]] = {
    "containers": _open_containers,
    "bubblewrap": partial(_open_local, "bubblewrap", open_bubblewrap_sandbox),
}
"""How each launcher is opened, in the order in which `auto` tries them. All raise SandboxUnavailable."""


async def _try_profiles(opened: OpenedSandbox, offered: Profiles) -> OpenedSandbox:
    """Boot each offered profile once, together within TRIALS_S. One that does not boot is not offered; the first one
    must boot. One that may boot later is offered.

    Raises SandboxUnavailable.
    """
    if opened.silence:
        return replace(opened, profiles=offered)
    deadline_s, slots = asyncio.get_running_loop().time() + TRIALS_S, asyncio.Semaphore(TRIALS_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        trials = {
            name: group.create_task(_try_profile(opened.sandbox, name, profile, slots, deadline_s))
            for name, profile in offered.items()
        }
    found = {name: trial.result() for name, trial in trials.items()}
    first = next(iter(offered))
    if isinstance(error := found[first], Exception):
        reason = f"The execution profile {first!r}, first of CODE_PROFILES, does not boot: {error}."
        raise SandboxUnavailable(reason) from error
    return replace(opened, profiles={name: each for name, each in found.items() if isinstance(each, ExecutionProfile)})


async def _try_profile(
    sandbox: SupervisedSandbox, name: str, profile: ExecutionProfile, slots: asyncio.Semaphore, deadline_s: float
) -> ExecutionProfile | OSError | SupervisorFailed:
    """The profile with the limits that it has here, or unchanged if it may boot later; otherwise why it does not."""
    limits, posture, trial = sandbox.limits, sandbox.posture, asyncio.timeout_at(deadline_s)
    try:
        async with trial, slots:
            if name != DEFAULT_PROFILE:
                async with sandbox.launcher.take(name, TRIAL) as supervisor:
                    limits, posture = supervisor.limits, supervisor.posture
        if fault := find_network_fault(posture, expected=bool(profile.network)):
            raise SupervisorFailed(fault)
    except (OSError, SupervisorFailed) as error:
        if trial.expired() or is_temporary(error):
            why = str(error) or f"no answer within {TRIALS_S:g} s"
            _log.warning("Execution profile does not boot now", profile=name, error=why)
            return profile
        _log.error("Execution profile does not boot", profile=name, error=str(error))
        return error
    return profile.model_copy(update={"limits": limits})


@contextlib.asynccontextmanager
async def _keep_warm(opened: OpenedSandbox) -> AsyncGenerator[OpenedSandbox]:
    """Keep supervisors booted as the offered profiles configure, unless the launcher does this itself."""
    sizes = {name: profile.warm for name, profile in opened.profiles.items() if profile.warm}
    if not sizes or opened.sandbox.launcher.keeps_warm:
        yield opened
        return
    pool = WarmPool(opened.sandbox.launcher, sizes)
    filling = asyncio.create_task(run_guarded("sandbox_pool", pool.run))
    try:
        yield replace(opened, sandbox=opened.sandbox.with_launcher(pool))
    finally:
        await end_tasks(filling)

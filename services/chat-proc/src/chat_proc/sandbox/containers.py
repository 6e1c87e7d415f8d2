"""The launcher for machines with a container engine: a pair of containers per run, asked of the broker.

The worker has no engine address. The connection to the broker is the pair's lifeline: when it closes, the pair ends.
"""

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import AsyncGenerator
from typing import Final

import structlog

from chat_proc.sandbox.broker_line import BrokerAddress, BrokerLine, BrokerRefused, BrokerSilent, open_broker_line
from chat_proc.sandbox.launching import TRIAL, SupervisedSandbox, UnknownProfile
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.ports.sandbox import SandboxUnavailable
from everturn.wire.brokering import Attach, Attached, PairEnded, PairStarted, RefusalCode, RemovePair, StartPair
from everturn.wire.execution import Finished, LimitName, Posture, RunLimits
from everturn.wire.profiles import DEFAULT_PROFILE

START_TIMEOUT_S: Final = 60.0
"""A cold pair takes about 2 s; on a busy machine the engine and the supervisor's 30 s for its executor come on top."""

ATTACH_TIMEOUT_S: Final = 10.0
REMOVE_TIMEOUT_S: Final = 10.0
BUSY_PATIENCE_S: Final = 120.0
"""How long a run waits for its turn at a broker that has no room for another pair."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_NOT_SEEN: Final = "not seen yet: the broker did not answer when the worker started"

_log = structlog.get_logger(__name__)


async def open_container_sandbox(address: BrokerAddress) -> SupervisedSandbox:
    """A launcher that a pair of the default profile has shown to work. Raises BrokerSilent, SandboxUnavailable.

    A broker whose engine is down counts as silent: both may be there later.
    """
    launcher = ContainersLauncher(address)
    try:
        async with launcher.take(DEFAULT_PROFILE, TRIAL) as supervisor:
            return SupervisedSandbox(launcher, supervisor.posture, supervisor.limits, supervisor.image)
    except BrokerSilent:
        raise
    except BrokerRefused as refused:
        if refused.code == "engine_down":
            raise BrokerSilent(str(refused)) from refused
        raise explain_refusal(refused.code, str(refused)) from refused
    except SupervisorFailed as failure:
        raise explain_refusal("start_failed", str(failure)) from failure


def build_unseen_sandbox(address: BrokerAddress) -> SupervisedSandbox:
    """The same before the broker has answered: runs fail with the reason until it does."""
    posture = Posture("containers", _NOT_SEEN, 0, _NOT_SEEN, *(["not seen yet"] * 5))
    return SupervisedSandbox(ContainersLauncher(address), posture, RunLimits())


def explain_refusal(code: RefusalCode, detail: str) -> SandboxUnavailable:
    """What stands behind a trial pair that was not started."""
    if code == "image_missing":
        return SandboxUnavailable(f"The images of container runs are missing ({_shorten(detail)}).", "make images")
    return SandboxUnavailable(f"A trial pair of containers did not start: {_shorten(detail)}.")


class ContainersLauncher:
    """Asks the broker for a pair for each run. It holds no state between runs, so a broker that was away may return."""

    def __init__(self, address: BrokerAddress, *, busy_patience_s: float = BUSY_PATIENCE_S) -> None:
        self._address = address
        self._busy_patience_s = busy_patience_s

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        async with open_broker_line(self._address) as line:
            pair = await self._start(line, StartPair(profile, run_name))
            await line.ask(Attach(pair.pair_id), Attached, timeout_s=ATTACH_TIMEOUT_S)
            yield BootedSupervisor(
                line.become_stream(),
                pair.posture,
                pair.limits,
                read_errors=_hear_nothing,
                load_hits=functools.partial(self._load_hits, pair.pair_id),
                is_waiting=line.is_quiet,
                image=pair.executor_image,
            )

    async def _start(self, line: BrokerLine, request: StartPair) -> PairStarted:
        """A booted pair; waits for its turn while the broker is busy. Raises SupervisorFailed."""
        deadline, pause_s = time.monotonic() + self._busy_patience_s, _FIRST_PAUSE_S
        while True:
            try:
                return await line.ask(request, PairStarted, timeout_s=START_TIMEOUT_S)
            except BrokerRefused as refused:
                if refused.code == "unknown_profile":
                    raise UnknownProfile(str(refused)) from refused
                if refused.code != "busy" or time.monotonic() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _load_hits(self, pair_id: str, finished: Finished) -> tuple[LimitName, ...]:
        """What the engine saw, asked only where the end looks like the kernel's work: it costs a round trip."""
        if not suggests_kill(finished):
            return ()
        try:
            async with open_broker_line(self._address) as line:
                ended = await line.ask(RemovePair(pair_id), PairEnded, timeout_s=REMOVE_TIMEOUT_S)
        except SupervisorFailed as failure:
            _log.warning("hits_of_pair_unknown", error=str(failure))
            return ()
        return ended.hits


def suggests_kill(finished: Finished) -> bool:
    """Whether a run ended as one does that the kernel killed for its memory, and nobody inside has told so."""
    report = finished.report
    if finished.verdict == "died" or report is None:
        return True
    return report.signal == signal.SIGKILL and "memory" not in report.limits


async def _hear_nothing() -> str:
    """What containers say on stderr stays with the broker, which logs it."""
    return ""


def _shorten(detail: str) -> str:
    return " ".join(detail.split())[:300].rstrip(". ")

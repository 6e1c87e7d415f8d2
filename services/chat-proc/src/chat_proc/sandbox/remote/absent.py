"""The sandbox of a worker that has none of its own, because its programs run elsewhere."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.execution.messages import Posture, RunLimits

ELSEWHERE: Final = "elsewhere"
"""The name of this launcher, on which nothing can be started or tried."""

_AS_PROVIDED: Final = "as the engine of the profile provides"


def build_absent_sandbox(unavailable: SandboxUnavailable) -> SupervisedSandbox:
    """A sandbox that refuses every run with this reason."""
    posture = Posture(ELSEWHERE, "", 0, _AS_PROVIDED, "none", *([_AS_PROVIDED] * 4))
    return SupervisedSandbox(AbsentLauncher(unavailable.reason), posture, RunLimits())


class AbsentLauncher:
    """Implements Launcher for a worker without one."""

    keeps_warm = True

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        """Raises SupervisorFailed."""
        raise SupervisorFailed(self._reason)
        yield

"""Named places where a test makes a process die, freeze or fail: `FAILPOINT=name:nth:action`, separated by commas."""

import os
import signal
from dataclasses import dataclass
from enum import StrEnum

from everturn.core.errors import EverturnError, Invalid


class FailpointAction(StrEnum):
    """What happens at the nth hit: SIGKILL or SIGSTOP to this process, or an exception."""

    KILL = "kill"
    STOP = "stop"
    RAISE = "raise"


class FailpointRaised(EverturnError):
    """A failpoint was hit."""


@dataclass(slots=True)
class _Armed:
    hits_left: int
    action: FailpointAction


class Failpoints:
    """Counts hits by name. Bootstrap builds it from a setting; without one, hits do nothing."""

    def __init__(self, setting: str = "") -> None:
        self._armed = dict(_parse(part) for part in setting.split(",") if part.strip())

    def hit(self, name: str) -> None:
        """Perform the action configured for this place, if this is the nth hit."""
        armed = self._armed.get(name)
        if armed is None:
            return
        armed.hits_left -= 1
        if armed.hits_left == 0:
            _act(name, armed.action)


def _parse(part: str) -> tuple[str, _Armed]:
    name, _, rest = part.strip().partition(":")
    nth, _, action = rest.partition(":")
    if not name or not nth.isdigit() or int(nth) < 1 or action not in list(FailpointAction):
        raise Invalid(f"FAILPOINT has {part!r}; expected name:nth:kill|stop|raise.")
    return name, _Armed(int(nth), FailpointAction(action))


def _act(name: str, action: FailpointAction) -> None:
    match action:
        case FailpointAction.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case FailpointAction.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        case FailpointAction.RAISE:
            raise FailpointRaised(name)

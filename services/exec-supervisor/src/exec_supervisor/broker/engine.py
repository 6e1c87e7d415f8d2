"""The interface between the broker and what runs its pairs. An engine creates, watches and removes whole pairs.

Only its driver knows what a pair consists of, and only `entry.py` chooses the driver.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from everturn.core.errors import EverturnError, Unavailable
from everturn.execution.profiles import ExecutionProfile


class EngineDown(Unavailable):
    """The execution engine does not respond."""


class EngineRefused(EverturnError):
    """The execution engine rejected the request."""


class ImageMissing(EngineRefused):
    """The execution engine does not have this image."""


class NoCapacity(EngineRefused):
    """The execution engine has no room for another pair."""


class StartFailed(EverturnError):
    """The pair did not boot."""


class StartTimedOut(StartFailed):
    """The pair did not boot in time, perhaps because the machine is busy."""


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """How long a pair can take in an engine, in seconds, on a busy machine.

    `boot_s`: from the first call until the supervisor is ready, which itself gives its executor 30 s. `end_s`: for a
    pair whose line is closed until the engine has reported that it ended by itself. `removal_s`: 0.1 s on an idle
    machine, and seconds when twenty pairs end at once.
    """

    boot_s: float = 60.0
    end_s: float = 2.0
    removal_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PairPlan:
    """The plan of a pair. `expires_s` is in seconds since 1970; `run_id` is empty for a warm pair."""

    name: str
    profile_name: str
    profile: ExecutionProfile
    run_id: str
    expires_s: int
    executor_uid: int

    @property
    def preload(self) -> tuple[str, ...]:
        """The modules to import in advance: none if a run already waits, because its program may not need them."""
        return () if self.run_id else self.profile.preload


class SupervisorLine(Protocol):
    """The streams of a pair's supervisor. One task can read and one can write."""

    @property
    def errors(self) -> str:
        """The end of its stderr, so far."""
        ...

    async def read(self) -> bytes:
        """The next bytes of its stdout; empty at its end, also if the engine has disconnected."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes to its stdin. They are dropped if the supervisor is gone."""
        ...

    async def drain(self) -> None:
        """Wait until there is room. Raises ConnectionError when the supervisor is gone."""
        ...

    def close_input(self) -> None:
        """Close its stdin, which ends it; what it has already sent can still be read. Can be repeated."""
        ...

    def close(self) -> None:
        """Close both directions. Unwritten data is lost. Can be repeated."""
        ...


@dataclass(frozen=True, slots=True)
class PairImages:
    """The engine's names of a pair's images, which change with their content."""

    executor: str
    supervisor: str


@dataclass(frozen=True, slots=True)
class PairEvent:
    """`memory_limit`: the program has reached it. `executor_ended`: it has ended with `exit_code`. `pair_ended`: both
    halves have ended."""

    pair: str
    what: Literal["memory_limit", "executor_ended", "pair_ended"]
    exit_code: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that is left of a pair. `kind` is a label of the metrics; `is_own` means that it belongs to this broker
    or to a dead one with the same id."""

    name: str
    kind: str
    pair: str
    is_own: bool
    expires_s: int


class PairEngine(Protocol):
    """An engine for the pairs of one broker.

    All calls but `remove` raise EngineDown if it does not answer, EngineRefused if it rejects a request. A cancelled
    call first completes the request that it has sent, so that a later `remove` finds what it has created.
    """

    @property
    def times(self) -> EngineTimes: ...

    async def start(self, plan: PairPlan) -> SupervisorLine:
        """Create and start both halves concurrently. The line delivers everything that the supervisor sends.

        Raises ImageMissing, NoCapacity, StartFailed. `remove` the pair also after a failure.
        """
        ...

    async def load_images(self, name: str) -> PairImages:
        """The images of a pair that was started. Raises StartFailed if a half has already ended."""
        ...

    async def remove(self, name: str) -> Sequence[str]:
        """Remove whatever exists of a pair, and return what could not be removed. Can be repeated.

        Call it while `watch` runs: after the removal, it waits at most half a second for events of the pair that
        `watch` has not yielded yet. The caller limits the time of the call, and closes the line.
        """
        ...

    async def load_leftovers(self) -> Sequence[Leftover]:
        """Everything in the engine that belongs to pairs, of any broker, in the order in which it can be removed."""
        ...

    async def remove_leftover(self, leftover: Leftover) -> bool:
        """Remove it; False if it was already gone. Raises EngineRefused, also if it is still in use."""
        ...

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[PairEvent]]:
        """Connect, then yield the events of this broker's pairs until the engine disconnects.

        The first call yields the events since this object was created, later ones those since the last event.
        Events may be repeated.
        """
        ...

"""Sockets go when their credential does, and none waits for the question about another."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn_testing.core import FixedClock
from ingress.admission.limits import BodyBudget
from ingress.admission.metrics import IngressMetrics
from ingress.auth.callers import Caller
from ingress.errors import ProblemError, unauthorized
from ingress.sockets.connection import Admitted
from ingress.sockets.server import check_credential
from ingress.stream.recheck import Recheck

EVERY_S = 60
BUDGET = BodyBudget(max_bytes=10, max_bytes_per_user=10, metrics=IngressMetrics())


class Socket:
    """A socket that joined, and what became of it. `refusal` is what is said of its caller when asked."""

    def __init__(self, clock: FixedClock, *, expires_at: float | None = None) -> None:
        self.refusal: Exception | None = None
        self.silent = False
        self.work: list[asyncio.Task[None]] = []
        self.dismissals: list[str] = []
        caller = Caller(Principal("t", "p", "u"), expires_at)
        standing = Recheck(self._recheck, every_s=EVERY_S, monotonic=clock.monotonic).begin(caller)
        self.admitted = Admitted(caller, standing, {}, BUDGET.open(caller.principal), self._draw)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.work.append(asyncio.create_task(work))

    def dismiss(self, refusal: ProblemError) -> None:
        self.dismissals.append(refusal.detail)

    async def ended(self) -> list[str]:
        """What it was told, once all that was started has ended."""
        await asyncio.wait_for(asyncio.gather(*self.work), 30)
        return self.dismissals

    async def _recheck(self, caller: Caller) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if self.refusal:
            raise self.refusal

    async def _draw(self, name: str | None) -> None:
        return None


def look(clock: FixedClock, *sockets: Socket) -> None:
    """What the server does every second."""
    for socket in sockets:
        check_credential(socket, socket.admitted, clock.now().timestamp())


async def test_a_credential_that_has_ended_ends_its_socket_at_once() -> None:
    clock = FixedClock()
    socket = Socket(clock, expires_at=clock.now().timestamp() + 5)

    look(clock, socket)
    assert socket.dismissals == []
    clock.advance(5)
    look(clock, socket)

    assert socket.dismissals == ["The credential has expired."]


@pytest.mark.parametrize(
    ("refusal", "told"), [(None, []), (unauthorized("It was revoked."), ["It was revoked."]), (Unavailable("away"), [])]
)
async def test_once_in_its_time_it_is_asked_whether_the_caller_would_still_be_let_in(
    refusal: Exception | None, told: list[str]
) -> None:
    clock = FixedClock()
    socket = Socket(clock)
    socket.refusal = refusal

    look(clock, socket)
    assert socket.work == []
    clock.advance(EVERY_S)
    look(clock, socket)

    assert len(socket.work) == 1
    assert await socket.ended() == told


async def test_a_question_that_is_not_answered_holds_up_no_other_socket() -> None:
    clock = FixedClock()
    silent, revoked = Socket(clock), Socket(clock)
    ending = Socket(clock, expires_at=clock.now().timestamp() + EVERY_S)
    silent.silent, revoked.refusal = True, unauthorized("It was revoked.")

    clock.advance(EVERY_S)
    look(clock, silent, revoked, ending)

    assert await ending.ended() == ["The credential has expired."]
    assert await revoked.ended() == ["It was revoked."]
    assert not silent.work[0].done()
    assert await silent.ended() == []

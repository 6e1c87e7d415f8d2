"""Plays a schedule against a platform, heals everything, and has every conversation checked."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable
from typing import assert_never

from faults.links import Links
from faults.proxy import FaultProxy
from platform_harness.harness import Harness
from platform_harness.watcher import Watcher

from everturn_client.client import EverturnClient
from everturn_client.errors import ProblemError, Unreachable
from schedules.steps import (
    CONVERSATIONS,
    INGRESSES,
    SERVERS,
    WORKERS,
    ChangeSignal,
    Cut,
    Drain,
    Empty,
    Freeze,
    Kill,
    Say,
    SaySignal,
    Step,
    Timed,
    Worsen,
)

SETTLE_S = 150.0
"""How long everything may take to become idle once nothing is broken; a busy machine starts slowly."""
PARTS = (*SERVERS, *INGRESSES, *WORKERS)
EXPECTED = frozenset({404, 409, 422, 429, 503})
"""Allowed statuses while parts are down or after a turn has ended; never a 500."""


class Player:
    """Plays one schedule, and compares what was accepted on the way with the final state."""

    def __init__(self, harness: Harness, links: Links, seed: int) -> None:
        self._harness = harness
        self._links = links
        self._seed = seed
        self._ids: list[str] = []
        self._watchers: list[list[Watcher]] = []
        self._turns: list[set[str]] = [set() for _ in range(CONVERSATIONS)]
        self._signals: list[dict[str, None]] = [{} for _ in range(CONVERSATIONS)]
        self._going: set[asyncio.Task[None]] = set()
        self._drained: set[str] = set()
        self._unexpected: list[str] = []
        self.answers: Counter[str] = Counter()
        """How requests were answered."""

    async def run(self, schedule: tuple[Timed, ...]) -> None:
        """Raises AssertionError when an invariant does not hold."""
        for n in range(CONVERSATIONS):
            created = await self._harness.clients[n % 2].create_conversation()
            self._ids.append(created.conversation_id)
            watchers = [self._harness.watch(self._ids[n], ingress=n % 2)]
            watchers.append(self._harness.watch(self._ids[n], ingress=1 - n % 2, cuts=self._seed * 10 + n))
            self._watchers.append(watchers)
        for timed in schedule:
            await asyncio.sleep(timed.after_s)
            self._begin(self._play(timed.step))
        await self._settle()
        await self._check()

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._going.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._going.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._unexpected.append(repr(error))

    async def _play(self, step: Step) -> None:
        platform = self._harness.platform
        match step:
            case Say():
                await self._answered(self._say(step))
            case SaySignal():
                await self._answered(self._say_signal(step))
            case ChangeSignal():
                await self._answered(self._change_signal(step))
            case Kill(part):
                platform.kill(part)
            case Freeze(part, for_s):
                platform.kill(part, signal.SIGSTOP)
                await asyncio.sleep(for_s)
                platform.kill(part, signal.SIGCONT)
            case Drain(part):
                self._drained.add(part)
                platform.kill(part, signal.SIGTERM)
            case Empty():
                await self._empty()
            case Cut(service, server):
                self._link(service, server).cut()
            case Worsen():
                await self._worsen(step)
            case _:
                assert_never(step)

    async def _say(self, step: Say) -> None:
        client = self._harness.clients[step.ingress]
        sent = await client.send_message(self._ids[step.conversation], f"script:{step.script} please")
        self._turns[step.conversation].add(sent.turn_id)
        if sent.signal_id:
            self._signals[step.conversation][sent.signal_id] = None

    async def _say_signal(self, step: SaySignal) -> None:
        client = self._harness.clients[step.ingress]
        sent = await client.send_signal(self._ids[step.conversation], step.kind, step.text)  # pyright: ignore[reportArgumentType] drawn from the literals
        self._signals[step.conversation][sent.signal_id] = None

    async def _change_signal(self, step: ChangeSignal) -> None:
        said = self._signals[step.conversation]
        if not said:
            return
        signals, last = self._harness.clients[step.ingress].signals, list(said)[-1]
        if step.text is None:
            await signals.retract(self._ids[step.conversation], last)
        else:
            await signals.edit(self._ids[step.conversation], last, step.text)

    async def _answered(self, asking: Awaitable[None]) -> None:
        try:
            await asking
            self.answers["ok"] += 1
        except Unreachable:
            self.answers["unreachable"] += 1
        except ProblemError as error:
            self.answers[str(error.problem.status)] += 1
            if error.problem.status not in EXPECTED:
                self._unexpected.append(str(error))

    async def _empty(self) -> None:
        try:
            await asyncio.to_thread(self._harness.platform.redis.empty)
        except OSError:
            self.answers["redis was down already"] += 1

    async def _worsen(self, step: Worsen) -> None:
        link = self._link(step.service, step.server)
        match step.how:
            case "delay":
                link.delay(0.05)
            case "drip":
                link.drip(64, 0.002)
            case "silence":
                link.silence()
            case _:
                link.refuse()
        await asyncio.sleep(step.for_s)
        link.heal(cut=step.how == "silence")

    def _link(self, service: str, server: str | None) -> FaultProxy:
        return self._links.front[service] if server is None else self._links.between[service, server]

    async def _settle(self) -> None:
        """Let everything finish, and wait until every accepted turn has ended for all watchers."""
        while self._going:
            await asyncio.wait(set(self._going))
        self._links.heal()
        # Who keeps the parts alive waits ever longer between two starts, and one that drains is yet to end.
        for part in PARTS:
            if part in self._drained or self._harness.platform.pid(part) is None:
                await self._harness.platform.restart(part)
        try:
            async with asyncio.timeout(SETTLE_S):
                for client in self._harness.clients:
                    await _wait_served(client)
                for n, watchers in enumerate(self._watchers):
                    await self._wait_idle(n, watchers)
        except TimeoutError:
            raise AssertionError("\n".join(await self._describe_unsettled())) from None

    async def _describe_unsettled(self) -> list[str]:
        """What each watcher has, and what REST returns, for conversations that did not become idle."""
        report = [f"not idle after {SETTLE_S} s:"]
        for n, conversation_id in enumerate(self._ids):
            truth = await self._harness.clients[0].fetch(conversation_id)
            for name, state in [("rest", truth), *((f"watcher {n}", watcher.state) for watcher in self._watchers[n])]:
                turns = [(turn.turn_id, turn.status) for turn in state.turns] if state else None
                report.append(f"{conversation_id} {name}: {state and state.conversation.state} {turns}")
        return report

    async def _wait_idle(self, n: int, watchers: list[Watcher]) -> None:
        for watcher in watchers:
            for turn_id in self._turns[n]:
                await watcher.wait_ended(turn_id, SETTLE_S)
            await watcher.wait_until(
                lambda w: w.state is not None and w.state.conversation.state in ("idle", "error"), SETTLE_S
            )

    async def _check(self) -> None:
        assert self._unexpected == []
        for n, conversation_id in enumerate(self._ids):
            state = await self._harness.check_invariants(conversation_id, *self._watchers[n])
            assert self._turns[n] <= {turn.turn_id for turn in state.turns}, "a promised turn is missing"
            known = {signal.signal_id for turn in state.turns for signal in turn.signals}
            assert set(self._signals[n]) <= known, "a promised signal is missing"


async def _wait_served(client: EverturnClient) -> None:
    """Until its ingress answers: one that was killed while it started is started again after a while."""
    while True:
        try:
            await client.list_conversations(limit=1)
        except (Unreachable, ProblemError):
            await asyncio.sleep(0.1)
        else:
            return

"""Pairs in a Docker engine: two containers, a volume with their sockets, and an attachment to the supervisor.

In the layout `combined`, a pair is one container with both halves, and has no volume.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Final, Literal

from exec_supervisor.broker.docker_bodies import (
    LABEL_BROKER,
    LABEL_EXPIRES,
    LABEL_PAIR,
    LABEL_ROLE,
    Body,
    Role,
    build_combined,
    build_executor,
    build_supervisor,
    name_container,
    name_volume,
)
from exec_supervisor.broker.docker_engine import DockerEngine, EngineEvent, InUse, NotThere
from exec_supervisor.broker.docker_stdio import AttachedStdio
from exec_supervisor.broker.engine import (
    EngineDown,
    EngineRefused,
    EngineTimes,
    Leftover,
    PairEvent,
    PairImages,
    PairPlan,
    StartFailed,
)

EVENT_LAG_S: Final = 0.5

_VOLUME_TRIES: Final = 20
_VOLUME_PAUSE_S: Final = 0.1

PairLayout = Literal["pair", "combined"]
ROLES: Final[Mapping[PairLayout, tuple[Role, ...]]] = {"pair": ("supervisor", "executor"), "combined": ("combined",)}
"""The containers of a pair."""

_WITH_PROGRAM: Final = ("executor", "combined")
Removed = Mapping[Role, asyncio.Event]
"""Set when the engine has reported that the container of this role is removed."""


class DockerPairs:
    """A `PairEngine`. The engine removes a container that has ended, so an ended half is a removed container."""

    times = EngineTimes()

    def __init__(self, engine: DockerEngine, broker_id: str, layout: PairLayout = "pair") -> None:
        self._engine = engine
        self._broker_id = broker_id
        self._layout: PairLayout = layout
        self._removed: dict[str, Removed] = {}
        self._last_event_s = time.time()

    async def start(self, plan: PairPlan) -> AttachedStdio:
        if self._layout == "combined" and plan.profile.network:
            raise StartFailed(f"the profile {plan.profile_name!r} has a network, which combined containers can't have")
        self._removed[plan.name] = self._build_removed()
        with contextlib.ExitStack() as on_failure:
            if self._layout == "combined":
                line = await self._start_attached(plan, "combined", build_combined(plan, self._broker_id), on_failure)
            else:
                line = await self._start_both(plan, on_failure)
            on_failure.pop_all()
        return line

    async def load_images(self, name: str) -> PairImages:
        if self._layout == "combined":
            return PairImages(*([await self._load_image(name, "combined")] * 2))
        return PairImages(await self._load_image(name, "executor"), await self._load_image(name, "supervisor"))

    async def remove(self, name: str) -> list[str]:
        removed = self._removed.get(name) or self._build_removed()
        problems: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                for role in ROLES[self._layout]:
                    group.create_task(self._remove_container(name, role, removed[role], problems))
            if not problems and self._layout == "pair":
                await self._remove_volume(name)
        except (EngineDown, EngineRefused) as error:
            problems.append(f"volume: {error}")
        finally:
            self._removed.pop(name, None)
        return problems

    async def load_leftovers(self) -> list[Leftover]:
        """Containers before the volumes that they use."""
        found = await self._engine.load_labeled(LABEL_BROKER)
        return [
            Leftover(
                entry.name,
                "volume" if entry.is_volume else "container",
                entry.labels.get(LABEL_PAIR, ""),
                entry.labels.get(LABEL_BROKER) == self._broker_id,
                _read_number(entry.labels.get(LABEL_EXPIRES, "")),
            )
            for entry in sorted(found, key=lambda entry: entry.is_volume)
        ]

    async def remove_leftover(self, leftover: Leftover) -> bool:
        remove = self._engine.remove_volume if leftover.kind == "volume" else self._engine.kill_and_remove
        try:
            await remove(leftover.name)
        except NotThere:
            return False
        return True

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncGenerator[AsyncIterator[PairEvent]]:
        async with self._engine.watch(f"{LABEL_BROKER}={self._broker_id}", self._last_event_s) as events:
            yield self._read(events)

    async def _read(self, events: AsyncIterator[EngineEvent]) -> AsyncIterator[PairEvent]:
        async for event in events:
            self._last_event_s = max(self._last_event_s, event.at_s)
            if (found := self._try_translate(event)) is not None:
                yield found

    def _try_translate(self, event: EngineEvent) -> PairEvent | None:
        pair, role = event.attributes.get(LABEL_PAIR, ""), event.attributes.get(LABEL_ROLE)
        match event.action:
            case "oom" if role in _WITH_PROGRAM:
                return PairEvent(pair, "memory_limit")
            case "die" if role in _WITH_PROGRAM:
                return PairEvent(pair, "executor_ended", event.attributes.get("exitCode", ""))
            case "destroy" if pair in self._removed:
                removed = self._removed[pair]
                for known, is_removed in removed.items():
                    if known == role:
                        is_removed.set()
                return PairEvent(pair, "pair_ended") if all(half.is_set() for half in removed.values()) else None
            case _:
                return None

    async def _start_both(self, plan: PairPlan, on_failure: contextlib.ExitStack) -> AttachedStdio:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_executor(plan))
                supervisor = build_supervisor(plan, self._broker_id)
                return await self._start_attached(plan, "supervisor", supervisor, on_failure)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def _start_executor(self, plan: PairPlan) -> None:
        name = name_container(plan.name, "executor")
        await self._engine.create(name, build_executor(plan, self._broker_id))
        await self._engine.start(name)

    async def _start_attached(
        self, plan: PairPlan, role: Role, body: Body, on_failure: contextlib.ExitStack
    ) -> AttachedStdio:
        name = name_container(plan.name, role)
        await self._engine.create(name, body)
        # Attach before the start: there is no log that would keep its first output.
        line = await self._engine.attach(name)
        on_failure.callback(line.close)
        await self._engine.start(name)
        return line

    async def _load_image(self, name: str, role: Role) -> str:
        try:
            return await self._engine.load_image(name_container(name, role))
        except NotThere as error:
            raise StartFailed(f"the {role} ended immediately") from error

    async def _remove_container(self, name: str, role: Role, removed: asyncio.Event, problems: list[str]) -> None:
        """Remove a container. Add to `problems` if the engine fails, so that the other container is removed too."""
        if removed.is_set():
            return
        try:
            await self._engine.kill_and_remove(name_container(name, role))
        except InUse:
            await removed.wait()
        except NotThere:
            return
        except (EngineDown, EngineRefused) as error:
            problems.append(f"{role}: {error}")
            return
        # Earlier events, such as memory that ran out, belong in the report of the pair, so wait for them.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVENT_LAG_S):
                await removed.wait()

    async def _remove_volume(self, name: str) -> None:
        """Remove the volume. The engine rejects this until both containers are gone, so success implies that."""
        for _ in range(_VOLUME_TRIES):
            try:
                await self._engine.remove_volume(name_volume(name))
            except NotThere:
                return
            except InUse:
                await asyncio.sleep(_VOLUME_PAUSE_S)
            else:
                return
        raise InUse(f"the volume of {name}")

    def _build_removed(self) -> Removed:
        return {role: asyncio.Event() for role in ROLES[self._layout]}


def _read_number(text: str) -> int:
    return int(text) if text.isdigit() else 0

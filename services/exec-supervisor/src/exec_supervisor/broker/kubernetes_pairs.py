"""Pairs in a cluster: one Pod with two containers each, whose supervisor connects to this broker."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import Final, NoReturn

import structlog

from everturn.core.cancellation import discard_errors, end_tasks
from everturn.execution.messages import LINE_WAIT_S
from exec_supervisor.broker.dial_port import DialedLine, DialPort, Ticket
from exec_supervisor.broker.engine import (
    EngineDown,
    EngineRefused,
    EngineTimes,
    ImageMissing,
    Leftover,
    NoCapacity,
    PairEvent,
    PairImages,
    PairPlan,
    StartFailed,
    StartTimedOut,
)
from exec_supervisor.broker.kubernetes_api import KubernetesApi, NotThere, PodEvent, VersionGone
from exec_supervisor.broker.kubernetes_bodies import (
    EXPIRES,
    LABEL_BROKER,
    LABEL_PAIR,
    DialPlan,
    PodOptions,
    build_pod,
    name_pod,
)
from exec_supervisor.broker.kubernetes_pods import ContainerStatus, Pod, Terminated

_log = structlog.stdlib.get_logger()

EVENT_LAG_S: Final = 0.5
ROOM_WAIT_S: Final = 10.0
"""How long a run waits for a node with room. A warm pair waits until its boot takes too long: meanwhile, a cluster may
get another node."""

DIAL_LIMIT_S: Final = LINE_WAIT_S - 10.0
"""How long both halves have to start, and a supervisor to connect: less than an executor waits for its supervisor and
less than a boot, so that the reason is not lost."""

FOLLOW_PAUSE_S: Final = 0.5

_NO_IMAGE: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_BACK_OFF: Final = "ImagePullBackOff"
_NO_PULL: Final = frozenset({"ErrImagePull", "RegistryUnavailable", _BACK_OFF})
"""Problems after which the kubelet tries again, with growing pauses."""

_NO_START: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


class KubernetesPairs:
    """A `PairEngine`. A Pod that has ended stays until it is removed, so its end can also be seen later."""

    times = EngineTimes(boot_s=DIAL_LIMIT_S + 10.0, end_s=5.0)

    def __init__(self, api: KubernetesApi, port: DialPort, broker_id: str, options: PodOptions) -> None:
        self._api = api
        self._port = port
        self._broker_id = broker_id
        self._options = options
        self._ended: dict[str, asyncio.Event] = {}
        self._lines: dict[str, DialedLine] = {}
        self._version = ""

    async def start(self, plan: PairPlan) -> DialedLine:
        if plan.profile.network:
            raise StartFailed(f"the profile {plan.profile_name!r} has a network, which programs in Pods can't have")
        ticket = self._port.expect(plan.name)
        dial = DialPlan(self._port.address, self._port.certificate, ticket.token)
        try:
            pod = await self._api.create(name_pod(plan.name), build_pod(plan, self._broker_id, self._options, dial))
            self._ended[plan.name] = asyncio.Event()
            line = self._lines[plan.name] = await self._wait_for_line(plan, pod, ticket)
        except BaseException:
            self._port.forget(plan.name)
            if ticket.line.done() and not ticket.line.cancelled():
                ticket.line.result().close()
            ticket.line.cancel()
            raise
        return line

    async def load_images(self, name: str) -> PairImages:
        try:
            pod = await self._api.load(name_pod(name))
        except NotThere as error:
            raise StartFailed("its Pod was deleted") from error
        async with contextlib.aclosing(self._follow(name, pod)) as states:
            async for state in states:
                if problem := find_problem(state, ended=True):
                    raise problem
                executor, supervisor = state.find_image("executor"), state.find_image("supervisor")
                if executor and supervisor:
                    return PairImages(executor, supervisor)
        raise StartFailed("its Pod is not watched any more")

    async def remove(self, name: str) -> list[str]:
        self._port.forget(name)
        try:
            await self._api.delete(name_pod(name))
            # Its last state, such as memory that ran out, belongs in the report of the pair.
            if ended := self._ended.get(name):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVENT_LAG_S):
                        await ended.wait()
        except NotThere:
            return []
        except (EngineDown, EngineRefused) as error:
            return [f"pod: {error}"]
        finally:
            self._lines.pop(name, None)
            self._ended.pop(name, None)
        return []

    async def load_leftovers(self) -> list[Leftover]:
        pods, _ = await self._api.load_all(LABEL_BROKER)
        return [self._build_leftover(pod) for pod in pods]

    async def remove_leftover(self, leftover: Leftover) -> bool:
        try:
            await self._api.delete(leftover.name)
        except NotThere:
            return False
        return True

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncGenerator[AsyncIterator[PairEvent]]:
        selector = {"labelSelector": f"{LABEL_BROKER}={self._broker_id}"}
        known = frozenset(self._ended)
        pods: list[Pod] = []
        listed = not self._version
        if listed:
            pods, self._version = await self._api.load_all(selector["labelSelector"])
        try:
            async with self._api.watch(selector, self._version) as events:
                yield self._read(pods, known if listed else (), events)
        except VersionGone:
            self._version = ""
            raise

    async def _read(
        self, pods: list[Pod], known: Collection[str], events: AsyncIterator[PodEvent]
    ) -> AsyncIterator[PairEvent]:
        """The states of `pods`, the ends of the `known` pairs that have none, then what happens."""
        for pod in pods:
            for event in self._translate(pod):
                yield event
        for name in {*known} - {pod.get_label(LABEL_PAIR) for pod in pods}:
            yield self._note_end(name)
        try:
            async for change in events:
                self._version = change.version
                if change.pod is None:
                    continue
                for event in self._translate(change.pod, deleted=change.what == "deleted"):
                    yield event
        except VersionGone:
            self._version = ""
            raise

    def _translate(self, pod: Pod, *, deleted: bool = False) -> list[PairEvent]:
        name = pod.get_label(LABEL_PAIR)
        found: list[PairEvent] = []
        if executor := pod.find_end("executor"):
            if executor.reason == "OOMKilled":
                found.append(PairEvent(name, "memory_limit"))
            found.append(PairEvent(name, "executor_ended", str(executor.exit_code)))
        if (line := self._lines.get(name)) and (supervisor := pod.find_end("supervisor")):
            line.errors = supervisor.message
        if deleted or pod.has_ended:
            found.append(self._note_end(name))
        return found

    def _note_end(self, name: str) -> PairEvent:
        if ended := self._ended.get(name):
            ended.set()
        return PairEvent(name, "pair_ended")

    def _build_leftover(self, pod: Pod) -> Leftover:
        expires, is_own = pod.get_annotation(EXPIRES), pod.get_label(LABEL_BROKER) == self._broker_id
        return Leftover(pod.name, "pod", pod.get_label(LABEL_PAIR), is_own, int(expires) if expires.isdecimal() else 0)

    async def _wait_for_line(self, plan: PairPlan, pod: Pod, ticket: Ticket) -> DialedLine:
        """Wait until the supervisor has connected and the executor has started. Raises ImageMissing, NoCapacity,
        StartFailed."""
        start = _Start()
        failing = asyncio.create_task(self._fail_with_pod(plan.name, pod, start))
        starting = asyncio.create_task(_wait_for_both(ticket, start))
        room_s = ROOM_WAIT_S if plan.run_id else DIAL_LIMIT_S
        try:
            for limit_s in (room_s, DIAL_LIMIT_S - room_s):
                await asyncio.wait((failing, starting), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
                # A supervisor that has connected explains its end itself, unless it waited for a missing image.
                if failing.done() and (start.pull_problem or not ticket.line.done()):
                    failing.result()
                if starting.done() or failing.done():
                    return ticket.line.result()
                if start.unschedulable:
                    raise NoCapacity(start.unschedulable)
            late = "the executor did not start" if ticket.line.done() else "its supervisor did not connect"
            raise StartTimedOut(start.pull_problem or late)
        finally:
            await end_tasks(failing, starting)
            discard_errors(failing)

    async def _fail_with_pod(self, name: str, pod: Pod, start: "_Start") -> NoReturn:
        """Raise what keeps the Pod from starting, as soon as that is known."""
        async with contextlib.aclosing(self._follow(name, pod)) as states:
            async for state in states:
                start.note(state)
                # A half ends before the kubelet has stopped trying to pull the image of the other one.
                problem = find_problem(state, ended=bool(start.pull_problem))
                if problem:
                    is_consequence = start.pull_problem and isinstance(problem, StartFailed)
                    raise StartTimedOut(start.pull_problem) if is_consequence else problem
        raise StartFailed("its Pod is not watched any more")

    async def _follow(self, name: str, pod: Pod) -> AsyncGenerator[Pod]:
        """A Pod's states from this one on, without an end; the caller limits the time. Raises StartFailed when it is
        deleted."""
        selector = {"fieldSelector": f"metadata.name={name_pod(name)}"}
        while True:
            yield pod
            try:
                async with self._api.watch(selector, pod.version) as changes:
                    async for change in changes:
                        if change.what == "deleted":
                            raise StartFailed("its Pod was deleted")
                        if change.pod is not None:
                            yield change.pod
            except (EngineDown, VersionGone) as error:
                _log.debug("Lost the watch of a Pod", pod=pod.name, detail=str(error))
            await asyncio.sleep(FOLLOW_PAUSE_S)
            with contextlib.suppress(EngineDown):
                try:
                    pod = await self._api.load(name_pod(name))
                except NotThere as error:
                    raise StartFailed("its Pod was deleted") from error


class _Start:
    """How far a Pod has come. `unschedulable` is the scheduler's reason while it finds no node, and `pull_problem` says
    which image can't be pulled; both can pass. A supervisor that has ended meanwhile did so because of that problem:
    the kubelet can report its end together with the late start of the executor."""

    def __init__(self) -> None:
        self.unschedulable = ""
        self.pull_problem = ""
        self.executor_started = asyncio.Event()

    def note(self, pod: Pod) -> None:
        self.unschedulable = pod.find_unschedulable()
        unpulled = next((status for status in pod.statuses if status.waiting.reason in _NO_PULL), None)
        if unpulled is None:
            self.pull_problem = self.pull_problem if pod.find_end("supervisor") else ""
        elif not self.pull_problem or unpulled.waiting.reason != _BACK_OFF:
            # The status before a back-off has the cause.
            self.pull_problem = _describe_image(unpulled)
        if pod.has_started("executor") and not self.pull_problem:
            self.executor_started.set()


async def _wait_for_both(ticket: Ticket, start: _Start) -> None:
    await asyncio.wait((ticket.line,))
    await start.executor_started.wait()


def find_problem(pod: Pod, *, ended: bool = False) -> ImageMissing | StartFailed | None:
    """What keeps a Pod from running for good. With `ended`, also the end of its executor, which a supervisor explains
    better."""
    for status in pod.statuses:
        waiting, end = status.waiting, status.state.terminated if status.state else None
        if waiting.reason in _NO_IMAGE:
            return ImageMissing(_describe_image(status))
        if waiting.reason in _NO_START:
            return StartFailed(f"the {status.name} can't be started: {waiting.reason}: {waiting.message}")
        if end is not None and (ended or status.name == "supervisor"):
            return StartFailed(_describe_end(status.name, end))
    if pod.has_ended:
        return StartFailed(f"its Pod ended: {pod.status.reason or pod.status.phase} {pod.status.message}".strip())
    return None


def _describe_image(status: ContainerStatus) -> str:
    return f"the image {status.image} can't be pulled: {status.waiting.reason}: {status.waiting.message}"


def _describe_end(half: str, end: Terminated) -> str:
    """One sentence, with the end of the log if there is one."""
    reason = f" ({end.reason})" if end.reason not in ("", "Error", "Completed") else ""
    message = f": {end.message}" if end.message else ""
    return f"the {half} ended with code {end.exit_code}{reason}{message}"

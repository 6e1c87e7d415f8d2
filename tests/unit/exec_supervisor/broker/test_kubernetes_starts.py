"""How a pair in a Pod starts or fails, by what the kubelet reports and when."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from everturn.execution.framing import encode_frame
from everturn.execution.messages import PIPE_FRAME_BYTES, Finished
from everturn.execution.profiles import ExecutionProfile
from everturn.execution.records import build_message
from exec_supervisor.broker import kubernetes_pairs, pair
from exec_supervisor.broker.dial_port import DialPort, Ticket
from exec_supervisor.broker.engine import PairEvent, PairPlan, StartFailed, StartTimedOut
from exec_supervisor.broker.events import PairEvents
from exec_supervisor.broker.kubernetes_api import KubernetesApi, PodEvent
from exec_supervisor.broker.kubernetes_bodies import PodOptions
from exec_supervisor.broker.kubernetes_pairs import KubernetesPairs
from exec_supervisor.broker.kubernetes_pods import Pod
from exec_supervisor.broker.pair import Pair

State = Mapping[str, Mapping[str, object]]
CREATING: State = {"waiting": {"reason": "ContainerCreating"}}
UNPULLED: State = {"waiting": {"reason": "ErrImagePull", "message": "503"}}
BACK_OFF: State = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}
RUNNING: State = {"running": {}}
ENDED: State = {"terminated": {"exitCode": 1, "reason": "Error"}}


class ScriptedPod:
    """One Pod whose states a test reports, with the port at which its supervisor connects."""

    address, certificate = "broker:1", ""

    def __init__(self) -> None:
        self._changes: asyncio.Queue[PodEvent] = asyncio.Queue()
        self._ticket = Ticket("token")
        self.events = PairEvents()

    def report(self, executor: State, supervisor: State) -> None:
        self._changes.put_nowait(PodEvent("changed", self._build(executor, supervisor), "2"))
        if "terminated" in executor:
            self.events.record(PairEvent("n", "executor_ended", "1"))

    def connect(self, sent: bytes) -> None:
        self._ticket.line.set_result(cast("Any", SentLine(sent)))

    def _build(self, executor: State, supervisor: State) -> Pod:
        states = {"executor": executor, "supervisor": supervisor}
        containers = [{"name": half, "image": f"example/{half}"} for half in states]
        statuses = [{**each, "state": states[each["name"]]} for each in containers]
        metadata = {"name": "p", "resourceVersion": "1"}
        status = {"phase": "Pending", "containerStatuses": statuses}
        return Pod.model_validate({"metadata": metadata, "spec": {"containers": containers}, "status": status})

    async def create(self, *_: object) -> Pod:
        return self._build(CREATING, CREATING)

    @contextlib.asynccontextmanager
    async def watch(self, *_: object) -> AsyncIterator[AsyncIterator[PodEvent]]:
        async def read() -> AsyncIterator[PodEvent]:
            while True:
                yield await self._changes.get()

        yield read()

    def expect(self, _: str) -> Ticket:
        return self._ticket

    def forget(self, _: str) -> None:
        """There is only one."""


class SentLine:
    """What a supervisor has sent before its end."""

    errors = ""

    def __init__(self, sent: bytes) -> None:
        self._sent = [sent, b""]

    async def read(self) -> bytes:
        return self._sent.pop(0)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
async def pod(monkeypatch: pytest.MonkeyPatch) -> ScriptedPod:
    monkeypatch.setattr(pair, "LAST_OUTPUT_S", 0.1)
    return ScriptedPod()


def boot(pod: ScriptedPod) -> "asyncio.Task[object]":
    engine = KubernetesPairs(cast("KubernetesApi", pod), cast("DialPort", pod), "b", PodOptions())
    plan = PairPlan("n", "default", ExecutionProfile(), "", 10**10, 70_000)
    return asyncio.create_task(Pair(plan, "id", engine, pod.events, 0.0).boot())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


FINISHED = Finished("not_started", "the executor did not connect", 0, None)
GAVE_UP = encode_frame(build_message(FINISHED), PIPE_FRAME_BYTES)


async def test_an_executor_that_gave_up_waiting_hides_no_image_that_is_missing(pod: ScriptedPod):
    booting = boot(pod)
    pod.report(RUNNING, UNPULLED)
    await settle()
    pod.report(ENDED, BACK_OFF)

    with pytest.raises(StartTimedOut, match="example/supervisor can't be pulled: ErrImagePull: 503"):
        await booting


async def test_a_supervisor_that_ended_before_a_late_pull_is_no_final_failure(pod: ScriptedPod):
    booting = boot(pod)
    pod.report(UNPULLED, RUNNING)
    pod.connect(GAVE_UP)
    await settle()
    pod.report(RUNNING, ENDED)

    with pytest.raises(StartTimedOut, match="example/executor can't be pulled"):
        await booting


async def test_a_supervisor_that_has_connected_explains_its_end_and_nothing_is_logged(pod: ScriptedPod):
    unread: list[Mapping[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    booting = boot(pod)
    pod.report(CREATING, RUNNING)
    pod.connect(GAVE_UP)
    await settle()
    pod.report(CREATING, ENDED)

    with pytest.raises(StartFailed, match="the executor did not connect"):
        await booting
    del booting
    gc.collect()
    await settle()

    assert unread == []


async def test_an_image_that_both_halves_had_to_wait_for_is_no_problem_once_pulled(
    pod: ScriptedPod, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kubernetes_pairs, "DIAL_LIMIT_S", 0.2)
    booting = boot(pod)
    pod.report(RUNNING, UNPULLED)
    await settle()
    pod.report(RUNNING, RUNNING)

    with pytest.raises(StartTimedOut, match="its supervisor did not connect"):
        await booting

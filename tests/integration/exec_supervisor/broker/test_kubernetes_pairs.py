"""The driver of Pods over a stand-in of a cluster, whose node really starts supervisor and executor."""

import asyncio
import contextlib
import json
import ssl
import tempfile
from base64 import b64decode
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from helpers.broker import OwnBroker
from helpers.memory_pairs import MISSING_IMAGE
from helpers.pair_engine_contract import (
    PLAN,
    PairEngineContract,
    Subject,
    read_first,
    remove,
    started,
    wait_for,
    watching,
)
from helpers.waiting import wait_until
from kubernetes_cluster.cluster import Cluster

from chat_proc.sandbox.containers import ContainersLauncher, open_container_sandbox, parse_address
from chat_proc.sandbox.results import pack_inputs
from chat_proc.sandbox.supervised import run_supervised
from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.messages import (
    DIAL_HOST,
    EXECUTOR_FRAME_BYTES,
    Capability,
    Dial,
    GatewayCall,
    Launch,
    Ready,
    ToolGrant,
    ToolReply,
)
from everturn.execution.records import build_message
from exec_supervisor.broker import kubernetes_pairs
from exec_supervisor.broker.dial_port import DialPort, open_dial_port
from exec_supervisor.broker.engine import EngineDown, EngineRefused, NoCapacity, PairEvent, StartFailed, StartTimedOut
from exec_supervisor.broker.kubernetes_api import TRIES, KubernetesApi
from exec_supervisor.broker.kubernetes_bodies import PodOptions
from exec_supervisor.broker.kubernetes_pairs import KubernetesPairs
from exec_supervisor.broker.pairs import build_refusal


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as opened:
        yield opened


@pytest.fixture
async def port(cluster: Cluster) -> AsyncGenerator[DialPort]:
    async with open_dial_port("127.0.0.1:0", 4) as opened:
        yield opened


@pytest.fixture
async def api(cluster: Cluster) -> AsyncGenerator[KubernetesApi]:
    async with contextlib.aclosing(KubernetesApi(cluster.access)) as opened:
        yield opened
    assert not cluster.pods
    assert not cluster.node.running


@pytest.fixture
async def subject(cluster: Cluster, port: DialPort, api: KubernetesApi) -> AsyncGenerator[Subject]:
    async with contextlib.aclosing(KubernetesApi(replace(cluster.access, url="https://localhost:1"))) as none:
        yield Subject(
            KubernetesPairs(api, port, "b1", PodOptions()),
            KubernetesPairs(api, port, "b2", PodOptions()),
            KubernetesPairs(none, port, "b1", PodOptions()),
            PLAN,
            cluster.kill,
            lambda: cluster.pods,
        )


@pytest.fixture
def pairs(subject: Subject) -> KubernetesPairs:
    return cast("KubernetesPairs", subject.engine)


class TestKubernetesPairs(PairEngineContract):
    """With real processes and no limits of memory; a real cluster is not tested."""


async def test_memory_that_ran_out_is_an_event_also_when_the_history_is_gone(cluster: Cluster, subject: Subject):
    async with started(subject) as line:
        await read_first(line)
        async with watching(subject.engine):
            pass
        cluster.kill(PLAN.name, reason="OOMKilled")
        await wait_until(lambda: "terminated" in json.dumps(cluster.find_pod(PLAN.name)))
        cluster.compact()
        with pytest.raises(EngineRefused, match="too old"):
            async with subject.engine.watch():
                pass
        async with watching(subject.engine) as events:
            memory = await wait_for(events, "memory_limit")
            ended = await wait_for(events, "executor_ended")

    assert (memory, ended) == (
        PairEvent(PLAN.name, "memory_limit"),
        PairEvent(PLAN.name, "executor_ended", "137"),
    )


async def test_a_watch_whose_history_is_lost_ends_and_the_next_one_sees_what_was_deleted(
    cluster: Cluster, subject: Subject
):
    async with started(subject) as line:
        await read_first(line)
        async with subject.engine.watch() as events:
            reading = asyncio.ensure_future(anext(aiter(events)))
            cluster.delete(PLAN.name, forget=True)
            with pytest.raises(EngineRefused, match="too old"):
                await reading
        async with watching(subject.engine) as seen:
            assert await wait_for(seen, "pair_ended") == PairEvent(PLAN.name, "pair_ended")


async def test_a_watch_that_breaks_in_the_middle_of_a_line_is_an_engine_that_is_down(
    cluster: Cluster, subject: Subject
):
    async with started(subject) as line:
        await read_first(line)
        with pytest.raises(EngineDown, match=r"middle of an event|interrupted"):
            async with subject.engine.watch() as events:
                asyncio.get_running_loop().run_in_executor(None, cluster.hang_up)
                async for _ in events:
                    pass
        cluster.kill(PLAN.name)
        async with watching(subject.engine) as seen:
            await wait_for(seen, "executor_ended")


async def test_a_pair_outlives_an_api_that_is_away_for_a_while(cluster: Cluster, subject: Subject):
    async with started(subject) as line:
        await read_first(line)
        await asyncio.to_thread(cluster.stop)
        try:
            with pytest.raises(EngineDown):
                await subject.engine.load_leftovers()
            line.write(encode_frame({"kind": "nonsense"}))
            await line.drain()
        finally:
            await asyncio.to_thread(cluster.start)
        async with watching(subject.engine) as seen:
            assert await wait_for(seen, "pair_ended") == PairEvent(PLAN.name, "pair_ended")


async def test_overload_and_a_lost_answer_are_tried_again(cluster: Cluster, subject: Subject):
    cluster.api.failing = [503, 429]
    cluster.api.lost_answers = 1
    cluster.api.calls.clear()

    async with started(subject) as line:
        await read_first(line)

    assert cluster.api.calls[:5] == ["create"] * 4 + ["get"]


async def test_a_quota_that_others_change_meanwhile_is_tried_again(cluster: Cluster, subject: Subject):
    cluster.api.quota_conflicts = 2
    cluster.api.calls.clear()

    async with started(subject) as line:
        await read_first(line)

    assert cluster.api.calls[:3] == ["create"] * 3
    cluster.api.quota_conflicts = TRIES
    with pytest.raises(EngineDown, match="Operation cannot be fulfilled on resourcequotas"):
        await subject.engine.start(PLAN)


async def test_a_renewed_token_is_used_and_a_rejected_one_named(cluster: Cluster, pairs: KubernetesPairs):
    file = cluster.access.account_dir / "token"
    before = file.read_text()
    try:
        cluster.api.token = "renewed"
        with pytest.raises(EngineRefused, match="Unauthorized"):
            await pairs.load_leftovers()
        file.write_text("renewed\n")
        assert await pairs.load_leftovers() == []
    finally:
        file.write_text(before)
        cluster.api.token = before


async def test_a_pod_that_somebody_deletes_fails_its_start_or_ends_its_line(cluster: Cluster, subject: Subject):
    async with started(subject) as line, watching(subject.engine) as events:
        await read_first(line)
        cluster.delete(PLAN.name)
        while await line.read():
            pass
        await wait_for(events, "pair_ended")
        with pytest.raises(StartFailed, match="deleted"):
            await subject.engine.load_images(PLAN.name)

    cluster.node.unschedulable = "0/1 nodes are available: 1 Insufficient memory."
    try:
        starting = asyncio.create_task(subject.engine.start(PLAN))
        await wait_until(lambda: cluster.pods)
        cluster.delete(PLAN.name)
        with pytest.raises(StartFailed, match="deleted"):
            await starting
    finally:
        cluster.node.unschedulable = ""
        await remove(subject.engine, PLAN.name)


async def test_a_run_without_room_fails_with_what_the_scheduler_says(
    cluster: Cluster, subject: Subject, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kubernetes_pairs, "ROOM_WAIT_S", 0.5)
    cluster.node.unschedulable = "0/1 nodes are available: 1 Insufficient memory."
    try:
        with pytest.raises(NoCapacity, match="Insufficient memory"):
            await subject.engine.start(PLAN)
        # A warm pair waits longer: meanwhile a cluster may get another node.
        monkeypatch.setattr(kubernetes_pairs, "DIAL_LIMIT_S", 1.5)
        starting = asyncio.create_task(subject.engine.start(replace(PLAN, name="fedcba9876543210", run_id="")))
        await asyncio.sleep(1)
        waits = not starting.done()
        with pytest.raises(NoCapacity, match="Insufficient memory"):
            await starting
    finally:
        cluster.node.unschedulable = ""
        problems = [await remove(subject.engine, name) for name in (PLAN.name, "fedcba9876543210")]

    assert (waits, problems) == (True, [[], []])


PULL_FAILS = ("ErrImagePull", "registry.example answered 503")
WITHOUT_EXECUTOR = replace(PLAN, profile=PLAN.profile.model_copy(update={"executor_image": MISSING_IMAGE}))


async def test_an_image_that_is_pulled_later_starts_late(
    cluster: Cluster, subject: Subject, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cluster.node, "pulls", (PULL_FAILS, ("ImagePullBackOff", "Back-off"), ("", "")))

    async with started(replace(subject, plan=WITHOUT_EXECUTOR)) as line:
        assert isinstance(await read_first(line), Ready)


@pytest.mark.parametrize(
    ("limit_s", "beside"),
    [(1.0, {"waiting": {"reason": "ContainerCreating"}}), (110.0, {"terminated": {"exitCode": 0}})],
    ids=["for the whole time", "while its supervisor waits"],
)
async def test_an_image_that_is_not_pulled_may_be_there_later(
    cluster: Cluster, subject: Subject, monkeypatch: pytest.MonkeyPatch, limit_s: float, beside: dict[str, object]
):
    monkeypatch.setattr(kubernetes_pairs, "ROOM_WAIT_S", 0.5)
    monkeypatch.setattr(kubernetes_pairs, "DIAL_LIMIT_S", limit_s)
    monkeypatch.setattr(cluster.node, "pulls", (PULL_FAILS, ("ImagePullBackOff", "Back-off")))
    monkeypatch.setattr(cluster.node, "beside", beside)
    reason = f"the image {MISSING_IMAGE} can't be pulled: ErrImagePull: registry.example answered 503"

    async with asyncio.timeout(20):
        with pytest.raises(StartTimedOut, match=reason) as raised:
            await subject.engine.start(WITHOUT_EXECUTOR)

    assert await remove(subject.engine, PLAN.name) == []
    assert build_refusal(raised.value).code == "start_timeout"


async def test_a_profile_with_a_network_gets_no_pod(subject: Subject):
    profile = PLAN.profile.model_copy(update={"network": ("api.example.com:443",)})

    with pytest.raises(StartFailed, match="has a network, which programs in Pods can't have"):
        await subject.engine.start(replace(PLAN, profile=profile))


async def test_a_quota_that_is_used_up_is_no_capacity(cluster: Cluster, subject: Subject):
    cluster.api.refusal = 403, 'pods "everturn-run-x" is forbidden: exceeded quota: runs, used: pods=4, limited: pods=4'
    try:
        with pytest.raises(NoCapacity, match="exceeded quota"):
            await subject.engine.start(PLAN)
    finally:
        cluster.api.refusal = None


async def test_an_executor_with_more_rights_than_it_may_have_ends_with_the_reason(
    cluster: Cluster, subject: Subject, monkeypatch: pytest.MonkeyPatch
):
    """A runtime that loads no profile at all: the executor sees only what the stand-in leaves out."""
    monkeypatch.setattr(cluster.node, "writable_root", True)

    async with started(subject) as line:
        frames: list[object] = []
        decoder = FrameDecoder(EXECUTOR_FRAME_BYTES)
        while data := await line.read():
            frames += decoder.feed(data)

    assert "its root is writable" in str(frames)


async def dial(port: DialPort, pair: str, token: str) -> bytes:
    """What the broker answers to a client that knows its certificate: nothing, before it hangs up."""
    context = ssl.create_default_context(cadata=b64decode(port.certificate))
    host, _, number = port.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(number), ssl=context, server_hostname=DIAL_HOST)
    writer.write(encode_frame(build_message(Dial(pair, token))))
    try:
        async with asyncio.timeout(10):
            return await reader.read(1)
    finally:
        writer.transport.abort()


async def test_a_token_admits_the_supervisor_of_its_pair_once(port: DialPort):
    ticket, other = port.expect("p1"), port.expect("p2")

    refused = [await dial(port, "p1", token) for token in ("", "0" * 64, other.token, "\ud800")]
    admitted = asyncio.create_task(dial(port, "p1", ticket.token))
    async with asyncio.timeout(10):
        line = await ticket.line
    replayed = await dial(port, "p1", ticket.token)
    line.write(b"!")
    await line.drain()
    port.forget("p2")
    late = await dial(port, "p2", other.token)

    assert (refused, replayed, late) == ([b""] * 4, b"", b"")
    assert await admitted == b"!"
    assert len(ticket.token) == 64
    assert not other.line.done()
    line.close()


async def test_what_is_no_supervisor_is_disconnected(port: DialPort):
    context = ssl.create_default_context(cadata=b64decode(port.certificate))
    host, _, number = port.address.rpartition(":")
    for data in (b"GET / HTTP/1.1\r\n\r\n", encode_frame({"kind": "stop"}), b"\0\0\0\x02[]"):
        reader, writer = await asyncio.open_connection(host, int(number), ssl=context, server_hostname=DIAL_HOST)
        writer.write(data)
        async with asyncio.timeout(10):
            assert await reader.read(1) == b""
        writer.transport.abort()


PROGRAM = """
import socket

def open_socket(family):
    try:
        socket.socket(family).close()
    except PermissionError:
        return "refused"
    return "open"

print(open_socket(socket.AF_INET), open_socket(socket.AF_INET6), open_socket(socket.AF_UNIX))
print(open(f"{WORKDIR}/in.txt").read(), await test_tools.echo(x=1))
open(f"{OUTPUT_DIR}/out.txt", "w").write("written " * 2_000_000)
"""


async def echo(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, True, call.arguments)


async def test_a_broker_runs_programs_in_pods_and_the_next_one_removes_what_a_killed_one_left(cluster: Cluster):
    profiles = json.dumps({"default": {"warm": 1}})
    with (
        tempfile.TemporaryDirectory() as folder,
        OwnBroker(Path(folder), profiles=profiles, **cluster.settings) as broker,
    ):
        address = parse_address(broker.url)
        sandbox = await open_container_sandbox(address)
        async with ContainersLauncher(address).take("default", "run_1") as booted:
            launch = Launch(
                "e1", PROGRAM, ("out.txt",), 30.0, booted.limits, Capability((ToolGrant("test_tools.echo"),)), "nonce"
            )
            inputs = [*pack_inputs({"in.txt": b"given"})]
            done = await run_supervised(booted, launch, inputs, echo, asyncio.Event())
        report = done.finished.report
        assert report is not None, done.finished
        assert report.stdout_tail == "refused refused open\ngiven {'x': 1}\n", report
        assert done.tar.count(b"written ") == 2_000_000
        assert "Unix sockets" in sandbox.posture.network
        assert sandbox.posture.outer_uid in range(22_000, 23_000)

        async with ContainersLauncher(address).take("default", "run_2"):
            broker.kill()
        left = len(cluster.pods)
        broker.start()
        await wait_until(lambda: "Removed an orphaned resource" in broker.read_log())
        await wait_until(lambda: len(cluster.pods) == 1)

        assert left >= 1
    assert not cluster.pods

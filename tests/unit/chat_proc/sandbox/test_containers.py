"""The containers launcher against a broker that follows a script; real containers are in tests/sandbox."""

import asyncio
import dataclasses
import io
import tarfile
import threading

import pytest
from scripted_broker import (
    LIMITS,
    PAIR,
    POSTURE,
    REPORT,
    ScriptedBroker,
    follow,
    open_broker,
)

from chat_proc.sandbox import results
from chat_proc.sandbox.containers import (
    BrokerAddress,
    BrokerUnreachable,
    ContainersLauncher,
    build_unseen_sandbox,
    explain_refusal,
    open_container_sandbox,
    suggests_kill,
)
from chat_proc.sandbox.launching import MAX_UNPACKED_ON_LOOP_BYTES
from chat_proc.sandbox.port import ContractItem, RunRequest, SandboxUnavailable
from chat_proc.sandbox.results import hash_bytes, may_start_later
from everturn.execution.broker_messages import Attach, BrokerRefusal, RemovePair, StartPair
from everturn.execution.messages import Finished, GatewayCall, ToolReply

REQUEST = RunRequest("run-1", "turn_1", "print('hello')", ())
ENDED = Finished("ended", "", 5, POSTURE, REPORT)
KILLED = dataclasses.replace(ENDED, report=dataclasses.replace(REPORT, exit_code=None, signal=9))


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


def at(broker: ScriptedBroker) -> BrokerAddress:
    return BrokerAddress(broker.url, path=broker.url.removeprefix("unix://"))


async def test_a_run_ends_its_pair_by_closing_the_connection(tmp_path):
    async with open_broker(tmp_path, follow(), ENDED) as broker:
        sandbox = await open_container_sandbox(at(broker))
        result = await sandbox.run(REQUEST, refuse)
        await asyncio.wait_for(broker.all_closed.wait(), 10)

    assert result.ok, result.report_text
    assert (sandbox.posture, sandbox.limits, result.record.limits) == (POSTURE, LIMITS, LIMITS)
    assert result.record.image == PAIR.executor_image
    assert [type(request) for request in broker.requests] == [StartPair, Attach] * 2
    named = [request.run_id for request in broker.requests if isinstance(request, StartPair)]
    assert named == ["trial", "turn_1/run-1"]


async def test_a_run_that_may_have_been_killed_queries_the_engine(tmp_path):
    async with open_broker(tmp_path, follow(hits=("memory",)), KILLED) as broker:
        result = await build_unseen_sandbox(at(broker)).run(REQUEST, refuse)

    assert (result.error.code, result.limits_hit) == ("memory_limit", ("memory",))
    assert broker.requests[-1] == RemovePair(PAIR.pair_id)


async def test_a_failed_query_of_the_engine_leaves_the_result_unchanged(tmp_path):
    tell = follow()

    async with open_broker(tmp_path, lambda r: None if isinstance(r, RemovePair) else tell(r), KILLED) as broker:
        result = await build_unseen_sandbox(at(broker)).run(REQUEST, refuse)

    assert (result.error.code, result.limits_hit) == ("killed", ())


@pytest.mark.parametrize(
    ("finished", "suggested"),
    [
        (ENDED, False),
        (KILLED, True),
        (Finished("died", "", 1, POSTURE), True),
        (Finished("timeout", "", 1, POSTURE, REPORT), False),
    ],
)
def test_only_an_end_by_the_kernel_is_worth_a_question(finished, suggested):
    assert suggests_kill(finished) is suggested


async def test_a_line_that_breaks_in_the_run_is_a_failed_run(tmp_path):
    async with open_broker(tmp_path, follow(), None) as broker:
        result = await build_unseen_sandbox(at(broker)).run(REQUEST, refuse)

    assert (result.ok, result.error.code) == (False, "sandbox_failed")


async def test_a_busy_broker_is_asked_again_for_a_while(tmp_path):
    async with open_broker(tmp_path, follow(busy=2), ENDED) as broker:
        result = await build_unseen_sandbox(at(broker)).run(REQUEST, refuse)

    assert result.ok, result.report_text
    assert [type(request) for request in broker.requests] == [StartPair, StartPair, StartPair, Attach]


async def test_a_broker_that_stays_busy_is_a_failed_run_with_the_reason(tmp_path):
    async with open_broker(tmp_path, follow(busy=99), ENDED) as broker:
        sandbox = build_unseen_sandbox(at(broker)).with_launcher(ContainersLauncher(at(broker), busy_wait_s=0.2))
        result = await sandbox.run(REQUEST, refuse)

    assert result.error.code == "sandbox_failed"
    assert "busy" in result.error.message
    assert len(broker.requests) < 4


async def test_a_profile_that_the_broker_does_not_have_is_a_failed_run(tmp_path):
    script = follow(refusal=BrokerRefusal("unknown_profile", "there is no profile 'large'"))

    async with open_broker(tmp_path, script) as broker:
        result = await build_unseen_sandbox(at(broker)).run(REQUEST, refuse)

    assert "no profile 'large'" in result.error.message
    assert len(broker.requests) == 1
    assert not may_start_later(result)


@pytest.mark.parametrize(("code", "later"), [("image_missing", False), ("engine_down", True), ("start_failed", True)])
async def test_a_refusal_says_whether_the_program_may_start_later(tmp_path, code, later):
    async with open_broker(tmp_path, follow(refusal=BrokerRefusal(code, "No pair."))) as broker:
        result = await build_unseen_sandbox(at(broker)).run(REQUEST, refuse)

    assert may_start_later(result) is later


async def test_runs_fail_while_the_broker_is_down_and_recover(tmp_path):
    async with open_broker(tmp_path, follow(), ENDED) as broker:
        address = at(broker)
    sandbox = build_unseen_sandbox(address)

    down = await sandbox.run(REQUEST, refuse)
    (tmp_path / "broker.sock").unlink(missing_ok=True)
    async with open_broker(tmp_path, follow(), ENDED):
        back = await sandbox.run(REQUEST, refuse)

    assert (down.error.code, back.ok) == ("sandbox_failed", True)
    assert "can't be reached" in down.error.message


async def test_opening_without_a_broker_reports_it_as_unreachable(tmp_path):
    with pytest.raises(BrokerUnreachable):
        await open_container_sandbox(BrokerAddress("unix:///none", path=str(tmp_path / "none")))


async def test_opening_without_images_names_the_command_that_makes_them(tmp_path):
    script = follow(refusal=BrokerRefusal("image_missing", "No such image: everturn/executor:latest"))

    async with open_broker(tmp_path, script) as broker:
        with pytest.raises(SandboxUnavailable) as raised:
            await open_container_sandbox(at(broker))

    assert raised.value.remedy == "make images"


def test_another_refusal_is_reported_unchanged():
    other = explain_refusal("start_failed", "the image's entry point ended at once", is_local=True)
    elsewhere = explain_refusal("image_missing", "the image x can't be pulled: ErrImageNeverPull", is_local=False)

    assert "ended at once" in str(other)
    assert "ErrImageNeverPull" in str(elsewhere)
    assert (other.remedy, elsewhere.remedy) == ("", "")


async def test_a_broker_whose_engine_is_down_counts_as_silent(tmp_path):
    script = follow(refusal=BrokerRefusal("engine_down", "The container engine does not answer."))

    async with open_broker(tmp_path, script) as broker:
        with pytest.raises(BrokerUnreachable, match="engine_down"):
            await open_container_sandbox(at(broker))


async def test_cancelling_a_run_cuts_the_line_at_once(tmp_path):
    attached = asyncio.Event()
    tell = follow()

    def hold(request):
        if isinstance(request, Attach):
            attached.set()
        return tell(request)

    async with open_broker(tmp_path, hold, None) as broker:
        launcher = ContainersLauncher(at(broker))

        async def keep() -> None:
            async with launcher.take("default", "run"):
                await asyncio.Event().wait()

        keeping = asyncio.create_task(keep())
        await asyncio.wait_for(attached.wait(), 10)
        keeping.cancel()
        await asyncio.wait_for(broker.all_closed.wait(), 10)

    assert broker.open_lines == 0


async def test_large_outputs_are_unpacked_and_hashed_beside_the_event_loop(tmp_path, monkeypatch):
    on_loop: list[bool] = []

    def hash_and_note(data: bytes) -> str:
        if len(data) > MAX_UNPACKED_ON_LOOP_BYTES:
            on_loop.append(threading.current_thread() is threading.main_thread())
        return hash_bytes(data)

    monkeypatch.setattr(results, "hash_bytes", hash_and_note)
    body = bytes(4 << 20)
    async with open_broker(tmp_path, follow(), ENDED) as broker:
        broker.outputs = pack(body)
        request = dataclasses.replace(REQUEST, contract=(ContractItem("a.bin"),))
        result = await build_unseen_sandbox(at(broker)).run(request, refuse)

    assert [(artifact.filepath, artifact.size) for artifact in result.artifacts] == [("a.bin", len(body))]
    assert result.artifacts[0].sha256 == hash_bytes(body)
    assert on_loop == [False]


def pack(body: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo("0")
        member.size = len(body)
        archive.addfile(member, io.BytesIO(body))
    return stream.getvalue()

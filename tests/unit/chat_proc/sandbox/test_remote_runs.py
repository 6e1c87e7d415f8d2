"""Remote runs without an engine: the contract in memory, and recorded inputs."""

import pytest
from helpers.memory_runs import MemoryEngine, build_recorded
from helpers.remote_engine_contract import LIMITS, RemoteEngineContract, Subject, prepare

from chat_proc.sandbox.detached.port import RunEnd
from chat_proc.sandbox.port import ContractItem, FileHash, RunNotes, RunRequest, RunResult
from chat_proc.sandbox.remote.ecs import EcsPlace, read_ecs_place, read_state
from chat_proc.sandbox.remote.port import StartRecord, TaskState
from chat_proc.sandbox.remote.recording import prepare_run, read_recorded, read_start, record_line, record_start
from chat_proc.sandbox.remote.runs import FORGOTTEN_S, RemoteRuns
from chat_proc.sandbox.supervised import SupervisorFailed
from chat_proc.settings import ExecutionSettings
from everturn.core.errors import Invalid
from everturn.execution.framing import FrameDecoder, encode_frame, encode_raw
from everturn.execution.messages import PIPE_FRAME_BYTES, Capability, GatewayCall, InputsEnd, Launch, ToolGrant
from everturn.execution.records import build_message, parse_message
from everturn.execution.task_orders import MAX_LINE_BYTES, limit_result_bytes
from everturn.turns.detached import WatchedRun


class TestContract(RemoteEngineContract):
    @pytest.fixture
    def subject(self):
        return Subject(MemoryEngine(), MemoryEngine(is_down=True))


async def test_a_recorded_line_is_what_a_supervisor_would_receive():
    _, prepared = await prepare(
        "print(1)", inputs={"a.txt": b"x" * 100_000}, capability=Capability((ToolGrant("web_tools.web_fetch"),))
    )

    first, *pieces, last = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True).feed(record_line(prepared))

    launch = parse_message(first, Launch)
    assert (launch.execution_id, launch.program, launch.capability) == (prepared.run_id, "print(1)", Capability())
    assert b"".join(pieces) == b"".join(prepared.inputs)
    assert last == build_message(InputsEnd())
    assert [file.size for file in prepared.start.inputs] == [100_000]


async def test_a_request_that_cannot_run_has_its_result_at_once():
    request = RunRequest("run-1", "turn_1", "pass", (ContractItem("../a"),))

    refused = await prepare_run(request, LIMITS)

    assert isinstance(refused, RunResult)
    assert refused.error is not None
    assert refused.error.code == "bad_request"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "incomplete"),
        (build_recorded()[:-1], "incomplete"),
        (encode_raw(b"tar"), "incomplete"),
        (b"{}", "incomplete"),
        (b"\x7f\xff\xff\xff", "too_large"),
        (encode_frame({"kind": "finished"}), "lacks a field"),
        (encode_frame(build_message(GatewayCall(1, "web_tools.web_fetch", {}))), "unexpected message"),
        (bytes(limit_result_bytes(LIMITS) + 1), "at most"),
    ],
)
def test_a_recorded_result_that_is_none_is_refused(data: bytes, words: str):
    with pytest.raises(SupervisorFailed, match=words):
        read_recorded(data, LIMITS)


def test_a_record_of_a_start_that_is_none_is_refused():
    start = StartRecord((FileHash("größe.csv", 1, "0" * 64),), RunNotes(None, "a\nb"))

    assert read_start(record_start(start)) == start
    with pytest.raises(SupervisorFailed, match="record of its start"):
        read_start(b"[]")


def test_a_recorded_result_ends_with_its_last_frame():
    done = read_recorded(build_recorded(stdout="hello") + b"more", LIMITS)

    assert done.finished.report is not None
    assert (done.finished.report.stdout_tail, done.tar) == ("hello", b"")


def test_the_largest_inputs_fit_into_a_line():
    assert MAX_LINE_BYTES > (64 + 6 + 8) << 20


async def test_a_task_that_is_unknown_for_long_is_lost_until_that_is_recorded():
    now_s = [0.0]
    runs = RemoteRuns("fargate", MemoryEngine(), {}, unknown_s=120.0, now_s=lambda: now_s[0])
    first, second = (WatchedRun(name, "fargate", "task/x", None, "", 5.0, False, False) for name in ("a", "b"))
    lost = RunEnd("finished", "ECS no longer knows the task.")

    assert await runs.check([first, second]) == {}
    now_s[0] = 120.0
    assert await runs.check([first]) == {"a": lost}
    now_s[0] = 150.0
    assert await runs.check([first]) == {"a": lost}

    # Another worker has taken the second one, and this one takes it back much later.
    now_s[0] = FORGOTTEN_S
    assert await runs.check([second]) == {}
    now_s[0] += FORGOTTEN_S
    assert await runs.check([]) == {}
    assert runs._unknown == {}


def test_settings_name_what_is_missing():
    given = {"ECS_CLUSTER": "c", "ECS_SUBNETS": "a, b,", "ECS_SECURITY_GROUPS": "g", "ECS_BUCKET": "runs"}

    place = read_ecs_place(ExecutionSettings(**given))  # pyright: ignore[reportArgumentType] names of the environment

    assert place == EcsPlace("c", "everturn-run", "run", ("a", "b"), ("g",), "runs", "everturn/runs/")
    assert read_ecs_place(ExecutionSettings()) is None
    with pytest.raises(Invalid, match="ECS_BUCKET is needed too"):
        read_ecs_place(ExecutionSettings(**{**given, "ECS_BUCKET": ""}))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("task", "state"),
    [
        ({"lastStatus": "PROVISIONING"}, TaskState("pending")),
        ({"lastStatus": "RUNNING", "containers": [{"name": "run", "lastStatus": "RUNNING"}]}, TaskState("running")),
        ({"lastStatus": "A_NEW_ONE"}, TaskState("running")),
        (
            {"lastStatus": "STOPPED", "stoppedReason": "CannotPullContainerError", "containers": [{"name": "run"}]},
            TaskState("ended", "CannotPullContainerError"),
        ),
        (
            {
                "lastStatus": "DEPROVISIONING",
                "stoppedReason": "Essential container in task exited",
                "containers": [{"name": "run", "exitCode": 137, "reason": "OutOfMemoryError: Container killed"}],
            },
            TaskState("ended", "Essential container in task exited; OutOfMemoryError: Container killed", 137),
        ),
        (
            {
                "lastStatus": "RUNNING",
                "containers": [{"name": "run", "lastStatus": "STOPPED", "exitCode": 0, "imageDigest": "sha256:1a"}],
            },
            TaskState("ended", "", 0, image="sha256:1a"),
        ),
    ],
)
def test_the_states_of_ecs_are_read(task: dict[str, object], state: TaskState):
    assert read_state(task, "run") == state

"""Remote runs on a stand-in of ECS on Fargate, whose tasks are real processes in containers of their own."""

import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.fargate import (
    ACCOUNT,
    BUCKET,
    CLUSTER,
    CONTAINER,
    FAMILY,
    IMAGE,
    REGION,
    Fargate,
    Fault,
    build_definition,
    run_fargate,
)
from helpers.remote_engine_contract import (
    LIMITS,
    SLEEPS,
    RemoteEngineContract,
    Subject,
    collect,
    load_left,
    prepare,
    wait_for_end,
)
from helpers.task_container import TaskContainer, open_containers
from helpers.waiting import wait_until

from chat_proc.sandbox.port import ContractItem, RunResult
from chat_proc.sandbox.remote.ecs import ORDER_KEPT_S, EcsEngine, EngineNotReady, open_ecs_engine
from chat_proc.sandbox.remote.port import EngineUnavailable, RunRefused, TaskState
from chat_proc.sandbox.supervised import SupervisorFailed
from everturn.core.errors import Invalid
from everturn.execution.messages import MIB, Capability, ToolGrant
from everturn.execution.task_orders import TaskExit, limit_result_bytes
from exec_supervisor.local.process import load_descendants

PREFIX = "contract"


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskContainer]:
    with open_containers(tmp_path_factory.mktemp("tasks")) as containers:
        yield containers


@pytest.fixture(scope="module")
def fargate(containers: TaskContainer) -> Iterator[Fargate]:
    with run_fargate(containers.start) as fargate:
        yield fargate


@pytest.fixture(autouse=True)
def environment(fargate: Fargate, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in fargate.environment.items():
        monkeypatch.setenv(name, value)
    fargate.faults.clear()
    fargate.requests.clear()


@pytest.fixture
async def engine(fargate: Fargate) -> AsyncIterator[EcsEngine]:
    async with open_ecs_engine(fargate.place(PREFIX)) as engine:
        yield engine


class TestContract(RemoteEngineContract):
    @pytest.fixture
    async def subject(self, engine: EcsEngine, fargate: Fargate, monkeypatch: pytest.MonkeyPatch):
        nowhere = "http://127.0.0.1:9"
        for name in fargate.environment:
            if name.startswith("AWS_ENDPOINT"):
                monkeypatch.setenv(name, nowhere)
        async with open_ecs_engine(fargate.place(PREFIX)) as down:
            yield Subject(engine, down)


async def test_outputs_inputs_and_errors_come_back_and_no_tool_can_be_called(engine: EcsEngine):
    program = """
try:
    import web_tools
    web_tools.web_fetch(url="x")
except Exception as error:
    print(type(error).__name__, error)
open(OUTPUT_DIR + "/out.txt", "w").write(open("turn_1/in.txt").read() * 2)
1 / 0
"""
    capability = Capability((ToolGrant("web_tools.web_fetch"),))

    result = await run(
        engine,
        program,
        contract=(ContractItem("out.txt"),),
        inputs={"turn_1/in.txt": b"data " * 50_000},
        capability=capability,
    )

    assert [artifact.body for artifact in result.artifacts] == [b"data " * 100_000]
    assert result.error is not None
    assert (result.error.code, result.error.where) == ("program_error", "program.py line 8")
    assert "web_tools" in result.user_out_tail
    assert not result.record.calls
    assert result.record.posture is not None
    assert result.record.posture.launcher == "fargate"


async def test_a_program_ends_at_its_time_limit(engine: EcsEngine):
    result = await run(engine, SLEEPS, timeout_s=0.5)

    assert result.error is not None
    assert (result.error.code, result.user_out_tail) == ("timeout", "begun\n")


async def test_a_program_reaches_neither_the_credentials_nor_what_gives_them_out(engine: EcsEngine, fargate: Fargate):
    host, port = fargate.endpoint.removeprefix("http://").split(":")
    program = f"""
import glob, os, socket
found = [name for name in os.environ if name.startswith(("AWS_", "ECS_"))]
for place in glob.glob("/proc/[0-9]*"):
    if os.stat(place).st_uid != os.getuid():
        for name in ("environ", "mem", "maps"):
            try:
                found.append(f"{{place}} {{open(f'{{place}}/{{name}}', 'rb').read(9)}}")
            except OSError:
                pass
for address in (("169.254.170.2", 80), ("{host}", {port})):
    try:
        socket.create_connection(address, timeout=2)
        found.append(address)
    except PermissionError:
        print("denied")
print(found)
"""
    result = await run(engine, program)

    assert result.user_out_tail == "denied\ndenied\n[]\n", result.report_text


async def test_a_task_gets_the_name_of_a_secret_which_limits_what_it_may_store(engine: EcsEngine, fargate: Fargate):
    request, prepared = await prepare("print('something private')")
    task = await engine.start(prepared)
    fargate.kill(task)

    name = f"{PREFIX}/{request.execution_id}"
    order = {"name": CONTAINER, "command": ["task", name, "--region", REGION]}
    assert fargate.orders[task] == {"containerOverrides": [order]}
    secret = fargate.client("secretsmanager").get_secret_value(SecretId=name)["SecretString"]
    assert "something private" not in secret
    conditions = json.loads(b64decode(json.loads(secret)["result_fields"]["policy"]))["conditions"]
    assert ["content-length-range", 1, limit_result_bytes(LIMITS)] in conditions
    assert {"key": f"{name}/result"} in conditions


async def test_a_start_whose_answer_is_lost_starts_one_task_even_with_new_settings(engine: EcsEngine, fargate: Fargate):
    _, prepared = await prepare("print(1)")
    fargate.faults.append(Fault("RunTask", "ServerException", 500, after=True))
    before = {*fargate.processes}

    task = await engine.start(prepared)
    async with open_ecs_engine(replace(fargate.place(PREFIX), security_groups=("sg-2",))) as other:
        assert await other.start(prepared) == task

    assert fargate.requests.count("RunTask") == 3
    assert {*fargate.processes} - before == {task}
    fargate.kill(task)


async def test_repeated_starts_of_a_run_leave_few_versions_of_its_secret(fargate: Fargate):
    now_s = [0.0]
    engine = EcsEngine(fargate.place(PREFIX), now_s=lambda: now_s[0])
    request, prepared = await prepare("print(1)")
    fargate.faults.append(Fault("RunTask", reason="RESOURCE:CPU", times=3))
    for at_s in (0.0, ORDER_KEPT_S - 1, ORDER_KEPT_S):
        now_s[0] = at_s
        with pytest.raises(EngineUnavailable):
            await engine.start(prepared)
    puts = fargate.requests.count("CreateSecret"), fargate.requests.count("PutSecretValue")
    secret = fargate.client("secretsmanager").get_secret_value(SecretId=f"{PREFIX}/{request.execution_id}")
    (expires,) = parse_qs(urlsplit(json.loads(secret["SecretString"])["line_url"]).query)["X-Amz-Expires"]
    fargate.kill(await engine.start(prepared))
    await engine.discard(prepared.run_id)
    engine.close()

    # The second of the two creates finds the secret of the first.
    assert puts == (2, 1)
    assert int(expires) >= prepared.launch.timeout_s + prepared.allowance_s + ORDER_KEPT_S
    assert engine._stored_at_s == {}


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Fault("RunTask", "ExpiredTokenException"), EngineUnavailable, "ExpiredToken"),
        (Fault("RunTask", "AccessDeniedException"), RunRefused, "AccessDenied"),
        (Fault("CreateSecret", "AccessDeniedException"), RunRefused, "AccessDenied"),
        (Fault("RunTask", "InvalidParameterException"), RunRefused, "InvalidParameter"),
        (
            Fault("RunTask", "InvalidParameterException", message="EC2 answered: RequestLimitExceeded"),
            EngineUnavailable,
            "InvalidParameter",
        ),
        (
            Fault("RunTask", reason="You've reached the limit on the number of vCPUs you can run concurrently"),
            EngineUnavailable,
            "no room for the task: You've reached the limit on the number of vCPUs",
        ),
        (Fault("RunTask", reason="Role is not valid"), RunRefused, "did not start the task: Role is not valid"),
    ],
)
async def test_a_start_that_fails_says_whether_it_can_be_repeated(
    engine: EcsEngine, fargate: Fargate, fault: Fault, error: type[Exception], words: str
):
    _, prepared = await prepare("print(1)")
    fargate.faults.append(replace(fault))

    with pytest.raises(error, match=words) as raised:
        await engine.start(prepared)
    assert fault.message not in str(raised.value)


async def test_a_throttled_check_is_repeated_by_the_driver(engine: EcsEngine, fargate: Fargate):
    fargate.faults.append(Fault("DescribeTasks"))

    assert await engine.check(["task/x"]) == {"task/x": TaskState("unknown")}
    assert fargate.requests == ["DescribeTasks"] * 2


async def test_a_killed_task_has_no_result_and_is_later_forgotten(engine: EcsEngine, fargate: Fargate):
    request, prepared = await prepare(SLEEPS)
    task = await engine.start(prepared)

    fargate.kill(task)
    state = await wait_for_end(engine, task)

    assert state == TaskState("ended", "Essential container in task exited", 137, image=IMAGE)
    assert await engine.collect(request.execution_id, LIMITS) is None
    fargate.forget(task)
    assert await engine.check([task]) == {task: TaskState("unknown")}


async def test_a_run_goes_on_when_the_setting_names_another_cluster(engine: EcsEngine, fargate: Fargate):
    fargate.client("ecs").create_cluster(clusterName="later")
    _, earlier = await prepare(SLEEPS)
    _, present = await prepare(SLEEPS)
    of_earlier = await engine.start(earlier)

    async with open_ecs_engine(replace(fargate.place(PREFIX), cluster="later")) as other:
        of_present = await other.start(present)
        states = await other.check([of_earlier, of_present])
        assert [states[task].phase for task in (of_earlier, of_present)] == ["running", "running"]
        await other.stop(of_earlier, "no turn waits for it")
        await wait_for_end(other, of_earlier)
        # The role has lost the earlier cluster: its tasks count as unknown, and those of the present one are seen.
        fargate.faults.append(Fault("DescribeTasks", "AccessDeniedException"))
        states = await other.check([of_earlier, of_present])
        assert [states[task].phase for task in (of_earlier, of_present)] == ["unknown", "running"]
        await other.stop(of_present, "the test is over")


async def test_tasks_that_ecs_never_had_can_be_stopped(engine: EcsEngine, fargate: Fargate):
    cluster = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/{CLUSTER}"

    for task in (f"{cluster}/{'0' * 32}", f"{cluster}/short", "task/short"):
        await engine.stop(task, "nobody knows it")


async def test_a_missing_result_that_s3_denies_is_missing(engine: EcsEngine, fargate: Fargate):
    """The role may list its prefix only, so S3 does not say whether an object exists."""
    fargate.faults.append(Fault("GET object", "AccessDenied", 403))
    assert await engine.collect("never", LIMITS) is None

    fargate.client("s3").put_object(Bucket=BUCKET, Key=f"{PREFIX}/denied/result", Body=b"x")
    fargate.faults.append(Fault("GET object", "AccessDenied", 403))
    with pytest.raises(EngineUnavailable, match="403"):
        await engine.collect("denied", LIMITS)
    await engine.discard("denied")


async def test_a_stopped_program_has_what_it_wrote_until_then(engine: EcsEngine, fargate: Fargate):
    request, prepared = await prepare(
        "import time; open(OUTPUT_DIR + '/a', 'w').write('kept'); time.sleep(60)", contract=(ContractItem("a"),)
    )
    task = await engine.start(prepared)
    pid = fargate.processes[task].pid
    await wait_until(lambda: any(Path(f"/proc/{one}/root/workspace/out/a").exists() for one in load_descendants(pid)))

    await engine.stop(task, "cancelled by a person")
    state = await wait_for_end(engine, task)
    result = await collect(engine, request)

    assert state.exit_code == TaskExit.STORED
    assert result is not None
    assert result.error is not None
    assert (result.error.code, [artifact.body for artifact in result.artifacts]) == ("cancelled", [b"kept"])


async def test_a_task_without_its_secret_says_so(engine: EcsEngine, fargate: Fargate):
    request, prepared = await prepare("print(1)")
    fargate.faults.append(Fault("GetSecretValue", "ResourceNotFoundException"))

    state = await wait_for_end(engine, await engine.start(prepared))

    assert state.exit_code == TaskExit.NO_ORDER
    assert "could not read its secret" in state.reason
    assert await engine.collect(request.execution_id, LIMITS) is None


async def test_a_line_that_can_no_longer_be_read_is_the_result(engine: EcsEngine, fargate: Fargate):
    request, prepared = await prepare("print(1)")
    fargate.faults.append(Fault("GET object", "Request has expired", 403))

    await wait_for_end(engine, await engine.start(prepared))
    result = await collect(engine, request)

    assert result is not None
    assert result.error is not None
    assert (result.error.code, result.exit.by) == ("sandbox_failed", "not_run")
    assert result.error.message.endswith("the run's input can't be read: HTTP 403")


async def test_a_result_that_can_no_longer_be_stored_is_an_exit_code(engine: EcsEngine, fargate: Fargate):
    _, prepared = await prepare("print(1)")
    fargate.faults.append(Fault("POST object", "Request has expired", 403))

    state = await wait_for_end(engine, await engine.start(prepared))

    assert state.exit_code == TaskExit.NOT_STORED
    assert "could not store its result" in state.reason


@pytest.mark.parametrize("body", [b"", b"\x00\x00\x00\x02{}", b"\xff" * 100, bytes(LIMITS.output_bytes + 32 * MIB)])
async def test_a_stored_result_that_is_malformed_or_too_large_is_refused(
    engine: EcsEngine, fargate: Fargate, body: bytes
):
    fargate.client("s3").put_object(Bucket=BUCKET, Key=f"{PREFIX}/strange/result", Body=body)

    with pytest.raises(SupervisorFailed, match="stored result"):
        await engine.collect("strange", LIMITS)
    await engine.discard("strange")


async def test_leftovers_are_found_by_each_of_their_parts(engine: EcsEngine, fargate: Fargate):
    fargate.client("s3").put_object(Bucket=BUCKET, Key=f"{PREFIX}/only-a-result/result", Body=b"x")
    fargate.client("s3").put_object(Bucket=BUCKET, Key=f"{PREFIX}/only-a-start/start", Body=b"x")
    fargate.client("s3").put_object(Bucket=BUCKET, Key=f"{PREFIX}/something else", Body=b"x")
    fargate.client("secretsmanager").create_secret(Name=f"{PREFIX}/only-a-secret", SecretString="x")

    found = {left.run_id for left in await engine.load_leftovers(older_than_s=0)}

    assert {"only-a-result", "only-a-start", "only-a-secret"} <= found
    assert "something else" not in found
    for run_id in found:
        await engine.discard(run_id)
    assert not await engine.load_leftovers(older_than_s=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"taskRoleArn": ""}, "has no task role"),
        ({"requiresCompatibilities": ["EC2"]}, "lack FARGATE"),
        ({"memory": "1024"}, "the profile needs 1536"),
        ({"containerDefinitions": [{"name": "other", "image": "x", "memory": 2048}]}, "must be named 'run'"),
        ({"containerDefinitions": [{"name": "run", "image": "x", "memory": 2048}]}, "lacks readonlyRootFilesystem"),
    ],
)
async def test_a_task_definition_that_cannot_work_is_found_at_startup(
    engine: EcsEngine, fargate: Fargate, change: dict[str, object], words: str
):
    family = f"{FAMILY}-{abs(hash(words))}"
    fargate.client("ecs").register_task_definition(**{**build_definition(), "family": family, **change})

    async with open_ecs_engine(replace(fargate.place(PREFIX), task_definition=family)) as other:
        if words:
            with pytest.raises(EngineNotReady, match=words):
                await other.check_ready(LIMITS)
        else:
            await other.check_ready(LIMITS)


async def test_a_cluster_that_does_not_exist_is_found_at_startup(fargate: Fargate):
    async with open_ecs_engine(replace(fargate.place(PREFIX), cluster="nowhere")) as engine:
        with pytest.raises(EngineNotReady, match="ECS_CLUSTER"):
            await engine.check_ready(LIMITS)


async def test_a_missing_region_is_reported_with_its_variable(fargate: Fargate, monkeypatch: pytest.MonkeyPatch):
    """The SDK does not read AWS_REGION."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    with pytest.raises(Invalid, match="Set AWS_DEFAULT_REGION"):
        async with open_ecs_engine(fargate.place(PREFIX)):
            pass


async def run(engine: EcsEngine, program: str, **changes: object) -> RunResult:
    """Run a program to its end and discard it."""
    request, prepared = await prepare(program, **changes)
    task = await engine.start(prepared)
    state = await wait_for_end(engine, task)
    result = await collect(engine, request)
    assert result is not None, state
    await engine.discard(request.execution_id)
    assert await load_left(engine, request) is None
    return result

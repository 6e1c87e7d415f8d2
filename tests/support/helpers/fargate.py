"""A stand-in of ECS on Fargate, S3 and Secrets Manager: moto's server, behind an agent that starts the process of each
task, stops it, reports its end, and knows tokens for idempotency. In this process, so that tests can see its state."""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import boto3
from moto.ecs.models import ecs_backends
from moto.moto_api import state_manager
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from chat_proc.sandbox.remote.ecs import EcsPlace
from everturn_local.ports import LOOPBACK
from helpers.task_container import does_first_catch, signal_first

ACCOUNT, REGION = "123456789012", "us-east-1"
BUCKET, CLUSTER, FAMILY, CONTAINER = "everturn-runs", "everturn", "everturn-run", "run"
KEYS = {"AWS_ACCESS_KEY_ID": "stand-in", "AWS_SECRET_ACCESS_KEY": "stand-in", "AWS_DEFAULT_REGION": REGION}
IMAGE = f"sha256:{'1a' * 32}"
"""The digest that every task's container has."""
NO_TRANSITIONS = 1_000_000_000
ID_LENGTHS = (32, 36)
ENDS_WITHIN_S = 30
STOP_TIMEOUT_S = 20
"""When a task that ignores its stop is killed; 30 s on ECS, if its definition does not say otherwise."""

Json = dict[str, Any]
StartProcess = Callable[[Sequence[str], Mapping[str, str]], "subprocess.Popen[bytes]"]


@dataclass
class Fault:
    """An error instead of the answers to the next `times` requests of an action, such as `RunTask`. With `after`, the
    action has happened and only its answer is lost. With `reason`, the answer is no error, but a task that failed."""

    action: str
    code: str = "ThrottlingException"
    status: int = 400
    times: int = 1
    after: bool = False
    message: str = "a fault of the stand-in"
    reason: str = ""


@dataclass
class Fargate:
    """`start` starts the process of a task from its command and its environment. `processes` are those of tasks by
    name, also ended ones; `requests` are the actions in order."""

    start: StartProcess
    endpoint: str = ""
    subnet: str = ""
    processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)
    orders: dict[str, Json] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    by_token: dict[str, tuple[bytes, bytes, str]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it needs in its environment."""
        names = ("ECS", "SECRETS_MANAGER", "S3")
        return {**KEYS, **{f"AWS_ENDPOINT_URL_{name}": self.endpoint for name in names}}

    def client(self, service: str) -> Any:
        keys = {"aws_access_key_id": "stand-in", "aws_secret_access_key": "stand-in"}
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, **keys)

    def place(self, prefix: str) -> EcsPlace:
        """Settings of an installation whose objects and secrets have this prefix."""
        return EcsPlace(CLUSTER, FAMILY, CONTAINER, (self.subnet,), ("sg-1",), BUCKET, f"{prefix}/")

    def kill(self, task: str) -> None:
        """Kill the process of a task, as the kernel does when memory runs out."""
        signal_first(self.processes[task], signal.SIGKILL)

    def forget(self, task: str) -> None:
        """ECS forgets a task about an hour after its end."""
        del ecs_backends[ACCOUNT][REGION].tasks[find_cluster(task)][task]

    def __call__(self, environ: Json, start_response: Any) -> Iterable[bytes]:
        """Handle a request of WSGI."""
        action = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        kind = "list" if "list-type=" in environ["QUERY_STRING"] else "object"
        name = action or f"{environ['REQUEST_METHOD']} {kind}"
        self.requests.append(name)
        fault = next((fault for fault in self.faults if fault.action == name and fault.times), None)
        if fault is None:
            return self._serve(action, environ, start_response)
        fault.times -= 1
        if fault.after:
            for _ in self._serve(action, environ, lambda *_: None):
                pass
        if fault.reason:
            failed = {"tasks": [], "failures": [{"reason": fault.reason}]}
            return answer_json(start_response, json.dumps(failed).encode())
        return refuse(start_response, fault.code, fault.message, fault.status)

    def _serve(self, action: str, environ: Json, start_response: Any) -> Iterable[bytes]:
        if action not in ("RunTask", "StopTask", "DescribeTasks"):
            return self._moto(environ, start_response)
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = BytesIO(body)
        order = json.loads(body)
        cluster = order["cluster"].rpartition("/")[2]
        for task in [*order.get("tasks", ()), *([order["task"]] if "task" in order else [])]:
            if (of := find_cluster(task)) != cluster:
                why = f"Identifier is for cluster {of}. Your cluster is {cluster}"
                return refuse(start_response, "InvalidParameterException", why, 400)
        if action == "StopTask":
            return self._stop(order, start_response)
        return self._run(body, environ, start_response) if action == "RunTask" else self._moto(environ, start_response)

    def _run(self, body: bytes, environ: Json, start_response: Any) -> Iterable[bytes]:
        token = json.loads(body)["clientToken"]
        if token in self.by_token:
            earlier, answer, task = self.by_token[token]
            if earlier != body:
                about = {"resourceIds": [task]}
                return refuse(start_response, "ConflictException", "The token is in use.", 400, **about)
            return answer_json(start_response, answer)
        answer = b"".join(self._moto(environ, start_response))
        if b"taskArn" not in answer:
            return [answer]
        task = json.loads(answer)["tasks"][0]["taskArn"]
        self.by_token[token] = body, answer, task
        self._begin(task)
        return [answer]

    def _begin(self, name: str) -> None:
        task = ecs_backends[ACCOUNT][REGION].tasks[find_cluster(name)][name]
        task.created_at = datetime.now(UTC)
        self.orders[name] = task.overrides
        [override] = task.overrides["containerOverrides"]
        # What the agent of ECS adds; the address is never reached here.
        given = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/stand-in", **self.environment}
        process = self.processes[name] = self.start(override["command"], given)
        task.containers[0].last_status, task.last_status = "RUNNING", "RUNNING"
        task.containers[0].imageDigest = IMAGE
        threading.Thread(target=self._watch, args=(task, process), daemon=True).start()

    def _watch(self, task: Any, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        task.containers[0].exitCode = 128 - code if code < 0 else code
        task.stopped_reason = task.stopped_reason or "Essential container in task exited"
        task.containers[0].last_status = task.last_status = task.desired_status = "STOPPED"

    def _stop(self, order: Json, start_response: Any) -> Iterable[bytes]:
        if len(order["task"].rpartition("/")[2]) not in ID_LENGTHS:
            why = f"taskId length should be one of {[*ID_LENGTHS]}"
            return refuse(start_response, "InvalidParameterException", why, 400)
        task = ecs_backends[ACCOUNT][REGION].tasks[find_cluster(order["task"])].get(order["task"])
        if task is None:
            return refuse(start_response, "InvalidParameterException", "The referenced task was not found.", 400)
        if task.desired_status == "RUNNING":
            task.desired_status, task.stopped_reason = "STOPPED", order["reason"]
            process = self.processes[order["task"]]
            # A process that has no handler yet ignores the signal; ECS would kill it after half a minute.
            wait_s = STOP_TIMEOUT_S if does_first_catch(process, signal.SIGTERM) else 0
            signal_first(process, signal.SIGTERM)
            killing = threading.Timer(wait_s, signal_first, (process, signal.SIGKILL))
            killing.daemon = True
            killing.start()
        return answer_json(start_response, json.dumps({"task": {"taskArn": order["task"]}}).encode())

    def _moto(self, environ: Json, start_response: Any) -> Iterable[bytes]:
        return self.app(environ, start_response)

    def __post_init__(self) -> None:
        self.app = DomainDispatcherApplication(create_backend_app)


def find_cluster(task: str) -> str:
    """The cluster that the ARN of a task names."""
    return task.split("/")[1] if task.startswith("arn:") else CLUSTER


def refuse(start_response: Any, code: str, message: str, status: int, **more: object) -> list[bytes]:
    return answer_json(start_response, json.dumps({"__type": code, "message": message, **more}).encode(), status)


def answer_json(start_response: Any, body: bytes, status: int = 200) -> list[bytes]:
    start_response(f"{status} ", [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))])
    return [body]


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


@contextmanager
def run_fargate(start: StartProcess) -> Generator[Fargate]:
    """A stand-in with a cluster, a task definition and a bucket. At the end all tasks are killed."""
    state_manager.set_transition("ecs::task", {"progression": "manual", "times": NO_TRANSITIONS})
    fargate = Fargate(start)
    server = make_server(LOOPBACK, 0, fargate, threaded=True, request_handler=_Quiet)
    fargate.endpoint = f"http://{LOOPBACK}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        fargate.client("s3").create_bucket(Bucket=BUCKET)
        fargate.subnet = fargate.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
        fargate.client("ecs").create_cluster(clusterName=CLUSTER)
        fargate.client("ecs").register_task_definition(**build_definition())
        yield fargate
    finally:
        for process in fargate.processes.values():
            signal_first(process, signal.SIGKILL)
            process.wait(ENDS_WITHIN_S)
        server.shutdown()
        thread.join(ENDS_WITHIN_S)
        server.server_close()
        ecs_backends[ACCOUNT][REGION].reset()


def build_definition() -> Json:
    return {
        "family": FAMILY,
        "requiresCompatibilities": ["FARGATE"],
        "cpu": "1024",
        "memory": "2048",
        "taskRoleArn": f"arn:aws:iam::{ACCOUNT}:role/everturn-run",
        "containerDefinitions": [
            {"name": CONTAINER, "image": "everturn/run", "memory": 2048, "readonlyRootFilesystem": True}
        ],
    }

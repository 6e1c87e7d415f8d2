"""Remote runs as tasks of Amazon ECS on Fargate. What a task reads and writes is in a bucket, and its secret in Secrets
Manager has the signed URLs of both. All names follow from the id of the run, so any worker can go on.

The SDK blocks, so its calls run in threads, each with a time limit.
"""

import asyncio
import contextlib
import http
import json
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar, cast

import boto3
import structlog
import urllib3.exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError

from chat_proc.sandbox.remote.port import (
    RUN_ID,
    TASKS_AT_ONCE,
    EngineNotReady,
    EngineUnavailable,
    Leftover,
    RemoteRun,
    RunRefused,
    StartRecord,
    TaskState,
)
from chat_proc.sandbox.remote.recording import read_recorded, read_start, record_line, record_start
from chat_proc.sandbox.supervised import ALLOWANCE_S, SupervisedRun, SupervisorFailed
from chat_proc.settings import ExecutionSettings
from everturn.core.errors import Invalid
from everturn.execution.messages import MIB, RunLimits
from everturn.execution.records import build_message
from everturn.execution.task_orders import TASK_EXITS, TaskExit, TaskOrder, limit_result_bytes

_log = structlog.get_logger(__name__)

FARGATE: Final = "fargate"
"""The engine's name in profiles and in the rows of runs."""
THREADS: Final = 8
TRIES: Final = 3
"""Attempts for each request, by the SDK, with its pauses."""

CONNECT_TIMEOUT_S: Final = 3.0
READ_TIMEOUT_S: Final = 10.0
CALL_TIMEOUT_S: Final = 60.0
"""For one method call of a client: all attempts, and 64 MiB to or from the bucket."""

ORDER_KEPT_S: Final = 600.0
"""Repeated starts of a run put a new version of its secret at most this often: Secrets Manager keeps each one for a
day, and about 100 in all."""
MAX_ORDERS: Final = 10_000

MAX_LEFTOVERS: Final = 1000
SUPERVISOR_BYTES: Final = 512 * MIB
"""What a task needs besides its program: the interpreter of the supervisor, the recorded input and the result."""

_MAX_REASON_CHARS: Final = 255
_MAX_STATE_CHARS: Final = 500
_LINE, _START, _RESULT = "line", "start", "result"
_MAX_START_BYTES: Final = 4 * MIB
"""The hashes of 200 inputs and the notes are less than 200 kB."""

_TASK_NAME: Final = re.compile(r"arn:[^:]*:ecs:[^:]*:[^:]*:task/([^/]+)/[^/]+")
_ABSENT: Final = frozenset({"NoSuchKey", "404"})
_DENIED: Final = frozenset({"AccessDenied", "403"})
_BUSY: Final = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "LimitExceededException",
        "ServerException",
        "InternalServiceError",
        "ServiceUnavailable",
        "SlowDown",
        "RequestTimeout",
        "ExpiredToken",
        "ExpiredTokenException",
    }
)
"""Codes after which another attempt can succeed. An expired token is renewed by the SDK."""

_NO_TASK: Final = ("not found", "length should be")
"""Parts of what ECS says of tasks that it doesn't have."""

_NO_ROOM: Final = ("capacity", "resource:", "reached the limit")
"""Parts of the reasons of ECS for a task that it could not place now. The last one is of a quota of the account."""

_PENDING: Final = frozenset({"PROVISIONING", "PENDING", "ACTIVATING"})
_ENDED: Final = frozenset({"DEPROVISIONING", "STOPPED", "DELETED"})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EcsPlace:
    """Where tasks run: `container` is the name of the one container of `task_definition` (a family, also with a
    revision). `prefix` begins the names of the objects in the bucket, and of the secrets."""

    cluster: str
    task_definition: str
    container: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    bucket: str
    prefix: str


def read_ecs_place(settings: ExecutionSettings) -> EcsPlace | None:
    """None without a cluster. Raises Invalid if something else is missing."""
    if not settings.ecs_cluster:
        return None
    place = EcsPlace(
        settings.ecs_cluster,
        settings.ecs_task_definition,
        settings.ecs_container,
        split_names(settings.ecs_subnets),
        split_names(settings.ecs_security_groups),
        settings.ecs_bucket,
        settings.ecs_prefix,
    )
    needed = {"ECS_SUBNETS": place.subnets, "ECS_SECURITY_GROUPS": place.security_groups, "ECS_BUCKET": place.bucket}
    if missing := [name for name, value in needed.items() if not value]:
        raise Invalid(f"ECS_CLUSTER is set, so {missing[0]} is needed too.")
    return place


def split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@contextlib.asynccontextmanager
async def open_ecs_engine(place: EcsPlace) -> AsyncGenerator["EcsEngine"]:
    """The engine, ready or not: `check_ready` asks. Region, endpoints and keys come from the standard variables and
    places of AWS. Raises Invalid if the SDK lacks a setting."""
    engine = EcsEngine(place)
    try:
        yield engine
    finally:
        engine.close()


class EcsEngine:
    """Implements RemoteEngine. `now_s` is a monotonic clock."""

    def __init__(self, place: EcsPlace, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._noting = threading.Lock()
        self._place = place
        self._bucket, self._prefix = place.bucket, place.prefix
        config: Any = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": TRIES},
            max_pool_connections=THREADS,
        )
        open_any = cast("Callable[..., Any]", boto3.client)  # pyright: ignore[reportUnknownMemberType] it has no types
        try:
            self._ecs = open_any("ecs", config=config)
            self._secrets = open_any("secretsmanager", config=config)
            # The default style signs URLs for the global host of S3, which redirects, and not every region accepts it.
            signing: Any = Config(signature_version="s3v4", s3={"addressing_style": "virtual"})
            self._s3 = open_any("s3", config=config.merge(signing))
        except NoRegionError as error:
            raise Invalid("AWS can't be used: no region is set. Set AWS_DEFAULT_REGION.") from error
        except (BotoCoreError, ValueError) as error:
            raise Invalid(f"AWS can't be used: {error}") from error
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ecs")
        self._stored_at_s: dict[str, float] = {}
        """When this worker has last stored the orders of runs, oldest first."""

    def close(self) -> None:
        """Calls that still run end at their socket's time limit. Nothing may be called after that."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def check_ready(self, limits: RunLimits) -> None:
        """Verify without a run that tasks for these limits can be started. Raises EngineNotReady, EngineUnavailable."""
        place = self._place
        run = partial(self._run, refused=EngineNotReady)
        clusters = await run(lambda: self._ecs.describe_clusters(clusters=[place.cluster])["clusters"])
        if [cluster["status"] for cluster in clusters] != ["ACTIVE"]:
            raise EngineNotReady(f"ECS has no active cluster {place.cluster!r} (ECS_CLUSTER).")
        named = place.task_definition
        definition = await run(lambda: self._ecs.describe_task_definition(taskDefinition=named)["taskDefinition"])
        if problem := find_definition_problem(definition, place.container, limits):
            raise EngineNotReady(f"The task definition {named!r} (ECS_TASK_DEFINITION) can't be used: {problem}.")
        await run(lambda: self._s3.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1))
        await run(lambda: self._secrets.list_secrets(MaxResults=1))

    async def start(self, run: RemoteRun) -> str:
        if not RUN_ID.fullmatch(run.run_id) or run.launch.capability.grants:
            raise ValueError("a remote run has an id of up to 64 letters, digits, '-' and '_', and can't call tools")
        return await self._run(partial(self._start, run), refused=RunRefused)

    def _start(self, run: RemoteRun) -> str:
        if not self._is_stored(start := self._key(run.run_id, _START)):
            # The record comes last: once it is there, a task may have read the line, and neither changes any more.
            self._s3.put_object(Bucket=self._bucket, Key=self._key(run.run_id, _LINE), Body=record_line(run))
            self._s3.put_object(Bucket=self._bucket, Key=start, Body=record_start(run.start))
        name = self._prefix + run.run_id
        if self._stored_at_s.get(run.run_id, -ORDER_KEPT_S) <= (now_s := self._now_s()) - ORDER_KEPT_S:
            self._store_order(name, json.dumps(build_message(self._sign_order(run))))
            self._note_stored(run.run_id, now_s)
        return self._run_task(run.run_id, ["task", name, "--region", self._secrets.meta.region_name])

    def _store_order(self, name: str, order: str) -> None:
        try:
            self._secrets.create_secret(Name=name, SecretString=order)
        except ClientError as error:
            if code_of(error) != "ResourceExistsException":
                raise
            # An earlier start has stored it; its URLs expire earlier.
            try:
                self._secrets.put_secret_value(SecretId=name, SecretString=order)
            except ClientError as full:
                if code_of(full) != "LimitExceededException":
                    raise
                # Each worker puts versions of its own. What an earlier start has stored can still be read.
                _log.warning("The secret of a run has too many versions", secret=name)

    def _note_stored(self, run_id: str, now_s: float) -> None:
        with self._noting:
            self._stored_at_s.pop(run_id, None)
            self._stored_at_s[run_id] = now_s
            while len(self._stored_at_s) > MAX_ORDERS:
                del self._stored_at_s[next(iter(self._stored_at_s))]

    def _sign_order(self, run: RemoteRun) -> TaskOrder:
        # A start up to ORDER_KEPT_S later uses the same URLs.
        lifetime_s = round(run.launch.timeout_s + run.allowance_s + ORDER_KEPT_S)
        most = limit_result_bytes(run.launch.limits)
        where = {"Bucket": self._bucket, "Key": self._key(run.run_id, _LINE)}
        line_url = self._s3.generate_presigned_url("get_object", Params=where, ExpiresIn=lifetime_s)
        form = self._s3.generate_presigned_post(
            self._bucket,
            self._key(run.run_id, _RESULT),
            Conditions=[["content-length-range", 1, most]],
            ExpiresIn=lifetime_s,
        )
        return TaskOrder(line_url, form["url"], form["fields"], most, run.launch.timeout_s + ALLOWANCE_S)

    def _run_task(self, run_id: str, command: Sequence[str]) -> str:
        place = self._place
        network = {
            "subnets": [*place.subnets],
            "securityGroups": [*place.security_groups],
            "assignPublicIp": "DISABLED",
        }
        try:
            answer = self._ecs.run_task(
                cluster=place.cluster,
                taskDefinition=place.task_definition,
                launchType="FARGATE",
                count=1,
                startedBy=run_id,
                clientToken=run_id,
                enableExecuteCommand=False,
                networkConfiguration={"awsvpcConfiguration": network},
                overrides={"containerOverrides": [{"name": place.container, "command": [*command]}]},
            )
        except ClientError as error:
            # The same token with other parameters: an earlier start, before the settings of this worker changed.
            if code_of(error) == "ConflictException" and (known := find_resources(error)):
                return known[0]
            raise
        if tasks := answer["tasks"]:
            return str(tasks[0]["taskArn"])
        reasons = ", ".join(str(failure.get("reason")) for failure in answer["failures"]) or "no reason given"
        if any(part in reasons.lower() for part in _NO_ROOM):
            raise EngineUnavailable(f"ECS has no room for the task: {reasons}.")
        raise RunRefused(f"ECS did not start the task: {reasons}")

    async def check(self, tasks: Sequence[str]) -> Mapping[str, TaskState]:
        if len(tasks) > TASKS_AT_ONCE:
            raise ValueError(f"at most {TASKS_AT_ONCE} tasks can be checked at once")
        by_cluster: dict[str, list[str]] = {}
        for task in tasks:
            by_cluster.setdefault(self._find_cluster(task), []).append(task)
        states = dict.fromkeys(tasks, TaskState("unknown"))
        for cluster, names in by_cluster.items():
            for task in await self._run(partial(self._describe, cluster, names)):
                states[task["taskArn"]] = read_state(task, self._place.container)
        return states

    def _describe(self, cluster: str, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        try:
            return self._ecs.describe_tasks(cluster=cluster, tasks=[*names])["tasks"]
        except ClientError as error:
            if self._is_lost(cluster, error):
                return ()
            raise

    def _find_cluster(self, task: str) -> str:
        """The cluster that the name of a task has: its run goes on when ECS_CLUSTER changes."""
        named = _TASK_NAME.fullmatch(task)
        return named[1] if named else self._own_cluster

    @property
    def _own_cluster(self) -> str:
        return self._place.cluster.rpartition("/")[2]

    def _is_lost(self, cluster: str, error: ClientError) -> bool:
        """Whether an earlier cluster is gone, or not open to workers any more. Its tasks are unknown then, and must not
        keep those of the present one from being seen."""
        if cluster == self._own_cluster or is_transient(error):
            return False
        _log.warning("The earlier cluster of a task can't be used", cluster=cluster, error=str(error))
        return True

    async def stop(self, task: str, reason: str) -> None:
        await self._run(partial(self._stop, task, reason[:_MAX_REASON_CHARS]))

    def _stop(self, task: str, reason: str) -> None:
        cluster = self._find_cluster(task)
        try:
            self._ecs.stop_task(cluster=cluster, task=task, reason=reason)
        except ClientError as error:
            # ECS has no code of its own for a task that it has forgotten, or whose id is malformed.
            is_gone = code_of(error) == "InvalidParameterException" and any(part in str(error) for part in _NO_TASK)
            if not is_gone and not self._is_lost(cluster, error):
                raise

    async def collect(self, run_id: str, limits: RunLimits) -> SupervisedRun | None:
        return await self._run(partial(self._collect, run_id, limits))

    def _collect(self, run_id: str, limits: RunLimits) -> SupervisedRun | None:
        data = self._try_read(run_id, _RESULT, limit_result_bytes(limits))
        return None if data is None else read_recorded(data, limits)

    async def load_start(self, run_id: str) -> StartRecord | None:
        data = await self._run(partial(self._try_read, run_id, _START, _MAX_START_BYTES))
        return None if data is None else read_start(data)

    def _try_read(self, run_id: str, part: str, most: int) -> bytes | None:
        key = self._key(run_id, part)
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            # S3 also denies access to a missing object if the role may list the bucket by prefix only.
            if code_of(error) in _ABSENT or (code_of(error) in _DENIED and not self._is_stored(key)):
                return None
            raise
        with contextlib.closing(answer["Body"]) as body:
            if (size := int(answer["ContentLength"])) > most:
                raise SupervisorFailed(f"the stored {part} has {size} bytes; at most {most} are allowed")
            return body.read()

    def _is_stored(self, key: str) -> bool:
        return bool(self._s3.list_objects_v2(Bucket=self._bucket, Prefix=key, MaxKeys=1).get("Contents"))

    async def discard(self, run_id: str) -> None:
        await self._run(partial(self._discard, run_id))

    def _discard(self, run_id: str) -> None:
        with self._noting:
            self._stored_at_s.pop(run_id, None)
        # The secret first: it is what opens the others.
        try:
            self._secrets.delete_secret(SecretId=self._prefix + run_id, ForceDeleteWithoutRecovery=True)
        except ClientError as error:
            if code_of(error) != "ResourceNotFoundException":
                raise
        for part in (_LINE, _START, _RESULT):
            self._s3.delete_object(Bucket=self._bucket, Key=self._key(run_id, part))

    async def load_leftovers(self, *, older_than_s: float) -> Sequence[Leftover]:
        before = datetime.now(UTC) - timedelta(seconds=older_than_s)
        found: dict[str, list[str]] = {}
        for list_some in (self._list_tasks, self._list_secrets, self._list_stored):
            for run_id, task in await self._run(lambda: [*list_some(before)]):  # noqa: B023 - awaited at once
                found.setdefault(run_id, []).extend(task)
        return tuple(Leftover(run_id, tuple(tasks)) for run_id, tasks in found.items())[:MAX_LEFTOVERS]

    def _list_tasks(self, before: datetime) -> Iterator[tuple[str, Sequence[str]]]:
        """Those that have not been stopped."""
        cluster, family = self._place.cluster, self._place.task_definition.rpartition("/")[2].partition(":")[0]
        pages = self._ecs.get_paginator("list_tasks").paginate(
            cluster=cluster,
            family=family,
            desiredStatus="RUNNING",
            PaginationConfig={"MaxItems": MAX_LEFTOVERS, "PageSize": TASKS_AT_ONCE},
        )
        for names in (page["taskArns"] for page in pages):
            for task in self._ecs.describe_tasks(cluster=cluster, tasks=names)["tasks"] if names else ():
                if RUN_ID.fullmatch(run_id := task.get("startedBy", "")) and task["createdAt"] < before:
                    yield run_id, (task["taskArn"],)

    def _list_secrets(self, before: datetime) -> Iterator[tuple[str, Sequence[str]]]:
        pages = self._secrets.get_paginator("list_secrets").paginate(
            Filters=[{"Key": "name", "Values": [self._prefix]}],
            PaginationConfig={"MaxItems": MAX_LEFTOVERS, "PageSize": TASKS_AT_ONCE},
        )
        for secret in (secret for page in pages for secret in page["SecretList"]):
            if (
                RUN_ID.fullmatch(run_id := secret["Name"].removeprefix(self._prefix))
                and secret["LastChangedDate"] < before
            ):
                yield run_id, ()

    def _list_stored(self, before: datetime) -> Iterator[tuple[str, Sequence[str]]]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, PaginationConfig={"MaxItems": MAX_LEFTOVERS}
        )
        for item in (item for page in pages for item in page.get("Contents", ())):
            run_id, _, part = item["Key"].removeprefix(self._prefix).partition("/")
            if part in (_LINE, _START, _RESULT) and RUN_ID.fullmatch(run_id) and item["LastModified"] < before:
                yield run_id, ()

    def _key(self, run_id: str, part: str) -> str:
        return f"{self._prefix}{run_id}/{part}"

    async def _run(self, call: Callable[[], T], *, refused: Callable[[str], Exception] = EngineUnavailable) -> T:
        """Run calls of the SDK in a thread. Raises EngineUnavailable, or what `refused` makes of an answer that another
        attempt would not change. Models read these errors, so they have the code of AWS alone: its texts name accounts,
        roles and addresses, and are logged."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except TimeoutError as error:
            raise EngineUnavailable(f"AWS did not answer within {CALL_TIMEOUT_S:g} s.") from error
        except ClientError as error:
            _log.warning("AWS refused a request", error=str(error)[:_MAX_STATE_CHARS])
            failure = EngineUnavailable if is_transient(error) else refused
            raise failure(f"AWS refused the request: {code_of(error)}.") from error
        except (BotoCoreError, urllib3.exceptions.HTTPError, OSError) as error:
            _log.warning("AWS did not answer", error=str(error)[:_MAX_STATE_CHARS])
            raise EngineUnavailable(f"AWS did not answer: {type(error).__name__}.") from error


def code_of(error: ClientError) -> str:
    """The error code of a service."""
    return str(cast("Mapping[str, Any]", error.response).get("Error", {}).get("Code", ""))


def find_resources(error: ClientError) -> Sequence[str]:
    """What an error is about, such as the tasks that an earlier request with the same token has started."""
    return cast("Mapping[str, Any]", error.response).get("resourceIds", ())


def is_transient(error: ClientError) -> bool:
    """Whether another attempt can succeed. ECS has no code of its own for a limit that it reached at EC2."""
    status = cast("Mapping[str, Any]", error.response).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or code_of(error) in _BUSY:
        return True
    return code_of(error) == "InvalidParameterException" and "RequestLimitExceeded" in str(error)


def read_state(task: Mapping[str, Any], container: str) -> TaskState:
    """A task as ECS describes it. One that runs and one with a status that this version does not know are both there.

    The result is stored before the container ends, so nothing has to wait until ECS has removed its network.
    """
    containers: Sequence[dict[str, Any]] = task.get("containers", [])
    ours = {found["name"]: found for found in containers}.get(container, dict[str, Any]())
    status = task.get("lastStatus", "")
    if status in _ENDED or ours.get("lastStatus") == "STOPPED":
        code: int | None = ours.get("exitCode")
        reasons: Sequence[str | None] = (task.get("stoppedReason"), ours.get("reason"), TASK_EXITS.get(code or 0))
        reason = "; ".join(reason for reason in reasons if reason)[:_MAX_STATE_CHARS]
        return TaskState("ended", reason, code, code == TaskExit.NOT_STORED, ours.get("imageDigest", ""))
    return TaskState("pending" if status in _PENDING else "running")


def find_definition_problem(definition: Mapping[str, Any], container: str, limits: RunLimits) -> str:
    """Why a task definition, as ECS describes it, can't run programs with these limits; empty if it can."""
    containers: Sequence[Mapping[str, Any]] = definition.get("containerDefinitions", [])
    names = [found.get("name") for found in containers]
    needed_mib = (limits.memory_bytes + SUPERVISOR_BYTES) // MIB
    if definition.get("status") != "ACTIVE":
        return "it is not active"
    if "FARGATE" not in definition.get("requiresCompatibilities", ()):
        return "its requiresCompatibilities lack FARGATE"
    if names != [container]:
        return f"its only container must be named {container!r} (ECS_CONTAINER), and there are {names}"
    if not containers[0].get("readonlyRootFilesystem"):
        return "its container lacks readonlyRootFilesystem, without which no program is run"
    if not definition.get("taskRoleArn"):
        return "it has no task role, which reads the secrets of runs"
    if int(definition.get("memory") or 0) < needed_mib:
        return f"it has {definition.get('memory')} MiB of memory, and the profile needs {needed_mib}"
    return ""

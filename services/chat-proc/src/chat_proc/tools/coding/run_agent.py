"""`code_agent.run`: a coding agent works on the project in the sandbox, with a model server that the worker is."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files as resources
from typing import Any, Final, Protocol, cast

import structlog
from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.tool import ToolCall, ToolContext, ToolOutcome, ToolSpec
from chat_proc.model_gateway.gateway import MAIN_NAME, GatewayTurn
from chat_proc.sandbox.port import RunRequest, RunResult, Sandbox, ServeConnection
from chat_proc.tools.coding.events import AgentView, read_events
from chat_proc.tools.coding.project_files import MAX_STATE_BYTES, AgentChanges, keep_home, pack_project, read_changes
from chat_proc.tools.coding.states import CallStates, try_load
from chat_proc.tools.stored_files import Destination, ProducedFile, build_deletion, check_room, load_local, save_file
from chat_proc.workspace.loading import WorkspaceHistory
from chat_proc.workspace.local import MAX_FILE_BYTES
from chat_proc.workspace.project import load_project
from everturn.core.errors import EverturnError, Invalid
from everturn.execution.destinations import MODEL_HOST
from everturn.execution.messages import MIB, Capability, GatewayCall, ToolGrant, ToolReply
from everturn.execution.profiles import ExecutionProfile
from everturn.files.model import Artifact, ArtifactKind
from everturn.files.objects import Objects
from everturn.history.model import WorkspaceChanges, read_origin
from everturn.timeline.blocks import ToolResultBody
from everturn.timeline.inert import escape_line
from everturn.turns.model import Effect

_log = structlog.get_logger(__name__)

TOOL_ID: Final = "code_agent.run"
MAX_TASK_CHARS: Final = 20_000
STARTING_AND_STORING_S: Final = 240.0
ANSWER_CHARS: Final = 12_000
WAIT_S: Final = 50.0
"""How long a question for the stop is open."""
STOP_WITHIN_S: Final = 20.0
"""How long the driver may take to end its agent and to save its work. Then the sandbox is ended."""
STORING_S: Final = 60.0
MAX_CALLS: Final = 50_000
MAX_BYTES: Final = 4 << 30
_DRIVER: Final = "driver"
_PROGRAM: Final = "import sys\nsys.path.insert(0, '.')\nfrom driver.bootstrap import drive\nawait drive(coding)\n"
_RESUMED: Final = (
    "The machine on which you worked was lost, and you go on with another one. Your files are as you left them, or as "
    "they were some seconds before. Go on with the task:\n\n"
)
_GRANTS: Final = (
    ToolGrant("coding.report", None, None, 30.0),
    ToolGrant("coding.ask", None, None, 30.0),
    ToolGrant("coding.save", None, None, 120.0),
    ToolGrant("coding.wait", None, None, WAIT_S + 10.0),
)


async def load_project_files(changes: WorkspaceChanges, context: ToolContext) -> Mapping[str, Artifact]:
    """The project as it is now, with what this turn has changed so far. Implements LoadFiles with its first
    argument."""
    return await load_project(changes, context.principal, context.conversation_id, context.turn_id)


class LoadFiles(Protocol):
    """The files that an agent works on."""

    async def __call__(self, context: ToolContext) -> Mapping[str, Artifact]:
        """By path below `files/`. Raises Invalid, Unavailable."""
        ...


OpenModels = Callable[[GatewayTurn, str], ServeConnection]
"""The model server of a run, which is named by the text."""


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """Which agent runs: its `runtime`, the execution profile of its sandbox, its models, and what is
    added to its instructions."""

    runtime: str
    profile_name: str
    profile: ExecutionProfile
    open_models: OpenModels
    instructions: str = ""

    @property
    def alias(self) -> str:
        """Begins the ids of its tools in steps."""
        return self.runtime.partition(":")[0].replace("-", "_")


class RunAgentParams(BaseModel):
    """What the agent is asked to do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str = Field(min_length=1, max_length=MAX_TASK_CHARS)


class RunAgentTool:
    """One task per call. A call that is repeated goes on with the session and the files of the worker that was lost."""

    def __init__(
        self,
        sandbox: Sandbox,
        objects: Objects,
        history: WorkspaceHistory,
        load_files: LoadFiles,
        agent: CodingAgent,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sandbox = sandbox
        self._objects = objects
        self._history = history
        self._load_files = load_files
        self._agent = agent
        self._monotonic = monotonic
        self.spec = ToolSpec(
            tool_id=TOOL_ID,
            summary="Let a coding agent change the project and run its programs and tests.",
            guide=resources("chat_proc.tools.coding").joinpath("run_agent.md").read_text("utf-8"),
            params=RunAgentParams,
            effect=Effect.IDEMPOTENT,
            strategy="exploitation",
            returns_partial_work=True,
            result_chars=ANSWER_CHARS + 4_000,
            timeout_s=agent.profile.timeout_s + STARTING_AND_STORING_S,
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = RunAgentParams.model_validate(call.params, from_attributes=True)
        context = call.context
        states = CallStates(self._objects, context.live.lease, context.turn_id, context.round, str(call.call_id))
        try:
            given = await self._load_files(context)
            project = await pack_project(self._objects, given)
            earlier = await states.load()
            archive = earlier.archive if earlier else await self._load_session(context)
        except EverturnError as error:
            return ToolOutcome("error", f"The agent was not started: {error}")
        view = AgentView(call, self._agent.alias, self._monotonic)
        if earlier:
            view.restore(earlier.events)
        running = _Running(call, view, states, earlier.archive if earlier else None)
        task = f"{_RESUMED}{params.task}" if earlier else params.task
        request = self._build_request(call, project, archive, task)
        result = await running.run(self._sandbox, request)
        return await self._build_outcome(call, running, result, given)

    async def _load_session(self, context: ToolContext) -> bytes | None:
        """The home of the agent after its last call in this conversation; its changes are in the project already."""
        key = find_last_state(context)
        state = await try_load(self._objects, key) if key else None
        if state is None:
            return None
        try:
            return await asyncio.to_thread(keep_home, state.archive)
        except Invalid as damaged:
            _log.warning("Could not read the session of a coding agent", turn_id=context.turn_id, error=str(damaged))
            return None

    def _build_request(self, call: ToolCall, project: bytes, state: bytes | None, task: str) -> RunRequest:
        order = {
            "runtime": self._agent.runtime,
            "task": task,
            "model": MAIN_NAME,
            "instructions": self._agent.instructions,
        }
        inputs: dict[str, Any] = {"project.tar": project, "order.json": json.dumps(order).encode(), **load_driver()}
        if state is not None:
            inputs["state.tar"] = state
        return RunRequest(
            execution_id="exec_" + call.call_id.removeprefix("call_"),
            turn_id=call.context.turn_id,
            program=_PROGRAM,
            contract=(),
            inputs=inputs,
            timeout_s=self._agent.profile.timeout_s,
            profile=self._agent.profile_name,
            capability=Capability(_GRANTS, MAX_CALLS, MAX_BYTES),
            serve_models=self._agent.open_models(call.context.live, str(call.call_id)),
        )

    async def _build_outcome(
        self, call: ToolCall, running: "_Running", result: RunResult, given: Mapping[str, Artifact]
    ) -> ToolOutcome:
        view = running.view
        changes = AgentChanges("", {}, (), ())
        notes: list[str] = list(view.notices)
        if running.state is not None:
            try:
                changes = await asyncio.to_thread(read_changes, running.state)
            except Invalid as damaged:
                notes.append(str(damaged))
        artifacts, refused = await self._store(call, changes, given)
        ok = result.ok and view.has_ended and not view.failure
        sections = [view.answer[:ANSWER_CHARS]]
        if view.failure:
            sections.append(f"The agent failed: {view.failure[:2_000]}")
        elif not view.has_ended:
            sections.append(f"The agent did not end its work. {result.report_text[:2_000]}")
        sections += [_list_files("Changed", artifacts), *(f"Not kept: {line}" for line in (*changes.refused, *refused))]
        sections += notes
        data: dict[str, Any] = {"runtime": self._agent.runtime}
        if running.saved:
            data["state"] = running.states.key
        return ToolOutcome(
            "ok" if ok else "error",
            "\n".join(section for section in sections if section) or "The agent said nothing.",
            artifacts=artifacts,
            records=view.build_records(),
            data={"code_agent": data},
            # The authors of imported files may have written them for this agent, and so may those of a page.
            untrusted=any(read_origin(artifact.description) for artifact in given.values())
            or any(used.opened and used.host != MODEL_HOST for used in result.record.connections),
        )

    async def _store(
        self, call: ToolCall, changes: AgentChanges, given: Mapping[str, Artifact]
    ) -> tuple[tuple[Artifact, ...], list[str]]:
        """The stored files and deletions, and a line for each that could not be stored."""
        stored: list[Artifact] = []
        refused: list[str] = []
        if not changes.written and not changes.deleted:
            return (), refused
        workspace = await load_local(self._history, call.context)
        try:
            async with asyncio.timeout(STORING_S):
                for path, body in changes.written.items():
                    destination = Destination(ArtifactKind.FILE, path)
                    try:
                        check_room(workspace, destination, len(body), max_bytes=MAX_FILE_BYTES)
                        artifact = await save_file(
                            self._objects, call, ProducedFile(destination, body, "internal", "exec")
                        )
                    except EverturnError as error:
                        refused.append(f"{escape_line(path)}. {error.detail or error}")
                        continue
                    stored.append(artifact)
        except TimeoutError:
            refused.append("more files: the file store did not answer in time")
        for path in changes.deleted:
            if path in given:
                stored.append(build_deletion(call, given[path], path))
        return tuple(stored), refused


@dataclass(slots=True)
class _Running:
    """One run. The program that drives the agent calls `answer`."""

    call: ToolCall
    view: AgentView
    states: CallStates
    state: bytes | None = None
    saved: bool = False
    _parts: list[bytes] = field(default_factory=list[bytes])
    _size: int = 0

    async def run(self, sandbox: Sandbox, request: RunRequest) -> RunResult:
        """The result, also of a run that a person stops: first the driver is asked to end."""
        hard_stop = asyncio.Event()
        stopping = asyncio.create_task(self._stop_late(hard_stop))
        try:
            return await sandbox.run(request, self.answer, stop=hard_stop)
        finally:
            stopping.cancel()

    async def answer(self, call: GatewayCall) -> ToolReply:
        """Raises EverturnError, which becomes an error of the driver's call."""
        match call.tool_id:
            case "coding.report":
                self.view.show(read_events(call.arguments.get("events")))
                return ToolReply(call.id, True)
            case "coding.ask":
                return ToolReply(call.id, True, {"allow": True, "message": ""})
            case "coding.save":
                await self._save(call.arguments)
                return ToolReply(call.id, True)
            case _:
                return ToolReply(call.id, True, await self._wait())

    async def _save(self, arguments: Mapping[str, object]) -> None:
        part, is_last = arguments.get("part"), arguments.get("is_last") is True
        self._size += len(part) if isinstance(part, bytes) else MAX_STATE_BYTES + 1
        is_too_large = self._size > MAX_STATE_BYTES
        if isinstance(part, bytes) and not is_too_large:
            self._parts.append(part)
        whole = b"".join(self._parts) if is_last else b""
        if is_last or is_too_large:
            self._parts.clear()
        if is_last:
            self._size = 0
        if is_too_large:
            raise Invalid(f"A state has at most {MAX_STATE_BYTES // MIB} MiB.")
        if is_last:
            self.state = whole
            self.saved = await self.states.save(self.view.log, whole) or self.saved

    async def _wait(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self.call.stop.wait()
        return "stop" if self.call.stop.is_set() else ""

    async def _stop_late(self, hard_stop: asyncio.Event) -> None:
        await self.call.stop.wait()
        await asyncio.sleep(STOP_WITHIN_S)
        hard_stop.set()


def load_driver() -> Mapping[str, bytes]:
    """The files of the driver, as inputs of its run."""
    folder = resources("chat_proc.tools.coding").joinpath(_DRIVER)
    return {f"{_DRIVER}/{file.name}": file.read_bytes() for file in folder.iterdir() if file.name.endswith(".py")}


def find_last_state(context: ToolContext) -> str:
    """The key of the state that the last call of this conversation left; empty if there is none."""
    for block in reversed(context.blocks):
        if isinstance(body := block.body, ToolResultBody) and body.tool_id == TOOL_ID and body.data:
            about = cast("Mapping[str, Any]", body.data.get("code_agent", {}))
            key = str(about.get("state", ""))
            if key:
                return key if key.startswith(f"{context.conversation_id}/") else ""
    return ""


def _list_files(heading: str, artifacts: Sequence[Artifact]) -> str:
    if not artifacts:
        return "No files were changed."
    lines = [f"- {'deleted ' if each.removed else ''}{escape_line(each.path)}" for each in artifacts[:50]]
    if len(artifacts) > len(lines):
        lines.append(f"- and {len(artifacts) - len(lines)} more")
    return "\n".join([f"{heading}:", *lines])

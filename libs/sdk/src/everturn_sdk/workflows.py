"""Workflows: what `workflow.py` of a bundle contains, and what its `run` can ask of the platform while a turn runs.

`run` is executed again from its beginning by the next worker if one is lost. The answers of the agent and the results
of steps are recorded, so they are returned then and not repeated; everything else in `run` is.
"""

import asyncio
import base64
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError, from_json, to_json

from everturn_sdk.channels import ChannelFormat
from everturn_sdk.models import ModelPort, Models, check_outside, run_inside
from everturn_sdk.protocol import HOOK_S, MAX_STEP_BYTES, SENT_ERROR_CHARS, Effect, Hook, RunFile
from everturn_sdk.tools import BadTool

WORKFLOW: Final = "workflow.py"
Outcome = Literal["completed", "capped", "stopped", "cut", "failed"]
HOOKS: Final[tuple[Hook, ...]] = get_args(Hook)

_HOOKS: Final = {"on_bundle_load": 0, "pre_run_hook": 0, "on_turn_end": 0, "before_round": 1, "after_tool": 1}
"""The number of arguments that each gets."""


class WorkflowError(Exception):
    """The workflow asked for something that is not possible; the text says why."""


class StepAmbiguous(WorkflowError):
    """A worker or the process of the bundle was lost while this irreversible step ran: it is unknown whether it took
    effect, and it is not repeated."""


class StepFailed(WorkflowError):
    """The function of a step raised an exception, now or before a worker was lost; it is not repeated."""


class Payload(BaseModel):
    """The message that the turn answers, and who sent it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: str
    attachments: tuple[RunFile, ...] = ()
    conversation_id: str = ""
    turn_id: str = ""
    tenant: str = ""
    project: str = ""
    user_id: str = ""
    roles: tuple[str, ...] = ()


class RunResult(BaseModel):
    """The result of one `react.run`. `text` is the answer, empty if the outcome is `failed`; `error` then says why.

    `capped` and `stopped` mean that the answer was written early, because of a limit or because the person
    intervened; `cut` means that it is incomplete. `files` are those that the agent has created.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: str = ""
    outcome: Outcome = "completed"
    error: str = ""
    files: tuple[RunFile, ...] = ()

    def __str__(self) -> str:
        return self.text


class ToolUse(BaseModel):
    """A call of a tool that has ended. `text` is what the model reads, cut at 4,000 characters."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    tool_id: str
    status: Literal["ok", "error", "ambiguous", "cancelled"]
    text: str
    round: int


class RunPort(ModelPort, Protocol):
    """How a running workflow reaches its worker. Implemented by the host."""

    async def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call a function of the author; one that is not async runs in a thread."""
        ...

    def serve(self, react: "React") -> None:
        """Let this agent's functions answer its next calls for knowledge."""
        ...


class React:
    """The agent of the bundle in one turn, as `build_react` returns it."""

    def __init__(
        self,
        workflow: "BaseWorkflow",
        scratchpad: object,
        search: Callable[..., Any] | None,
        read: Callable[..., Any] | None,
    ) -> None:
        self.scratchpad = scratchpad
        self._workflow = workflow
        self._functions = {"search": search, "read": read}

    @property
    def served(self) -> tuple[str, ...]:
        """The knowledge functions that it was given."""
        return tuple(name for name, function in self._functions.items() if function is not None)

    async def invoke(self, name: str, arguments: Mapping[str, Any], port: RunPort) -> Any:
        """Called by the platform: the result of one of its knowledge functions."""
        if (function := self._functions.get(name)) is None:
            raise WorkflowError(f"the workflow has no function for {name}")
        with run_inside("a knowledge function"):
            return await port.call(function, tuple(arguments.values()))

    async def run(self, payload: Payload | str) -> RunResult:
        """Let the agent answer. The person sees its work and its answer.

        The first call of a turn with the payload of `run` answers the person's message. Any other payload, and each
        further call, is a new task, which the agent reads below all that it has done so far. Raises WorkflowError in a
        step or a knowledge function, and if the turn has reached a limit.
        """
        return await self._workflow._answer(self, payload)  # pyright: ignore[reportPrivateUsage]


class ContextRAGClient:
    """Searches the person's conversations, and reads what refs name."""

    def __init__(self, port: Callable[[], RunPort]) -> None:
        self._port = port

    async def search(
        self, *, query: str, kind: Literal["user", "assistant", "attachment", "summary"] | None = None, limit: int = 5
    ) -> list[dict[str, Any]]:
        """The texts that best match the query, by meaning and words, from all conversations of the person in this
        project; each has a `ref`, a `text`, a `role`, a `turn_id`, a `ts` and a `score`. `limit` is at most 50."""
        return await self._port().ask("search", {"query": query, "kind": kind, "limit": limit})

    async def fetch_ctx(self, refs: Sequence[str]) -> str:
        """The contents behind up to 20 refs, such as `"ar:<turn_id>.assistant.completion"`, each after a line about it;
        at most 20,000 characters in total. A ref that can't be read has only the line."""
        return await self._port().ask("fetch_ctx", {"refs": list(refs)})


class ConversationStore:
    """The turns, the timeline and the files of this conversation."""

    def __init__(self, port: Callable[[], RunPort], choose_key: Callable[[str, str | None], str]) -> None:
        self._port = port
        self._choose_key = choose_key

    async def put_attachment(
        self,
        path: str,
        data: bytes | str,
        *,
        description: str = "",
        visibility: Literal["internal", "external"] = "external",
        key: str | None = None,
    ) -> RunFile:
        """Store a file of this turn, such as `report.pdf`, below `outputs/`, once for each key, as with
        `feedback`. The person sees an `external` one. A turn can have 20 such files, within the limits of all its
        files; like those of tools, they are not scanned for viruses. Raises WorkflowError if a limit is reached, and as
        `step` does."""
        _check_outside("self.store.put_attachment")
        asked = {
            "key": self._choose_key("store.put_attachment", key),
            "path": path,
            "description": description,
            "visibility": visibility,
        }
        content = data.encode() if isinstance(data, str) else data
        return RunFile.model_validate(await self._port().ask("put_file", asked, content=content))

    async def get_turns(self, *, limit: int = 20) -> list[dict[str, Any]]:
        """The last turns, at most 100, the oldest first. Each has a `turn_id`, the person's `text` and the `answer`;
        texts are cut at 4,000 characters."""
        return await self._port().ask("turns", {"limit": limit})

    async def get_timeline(self, turn_id: str | None = None) -> list[dict[str, Any]]:
        """The blocks of a turn, by default of this one: the last 500, each with its `ref`, `type`, `round`, `ts` and
        `text`, which is cut at 4,000 characters."""
        return await self._port().ask("timeline", {"turn_id": turn_id})

    async def list_artifacts(self) -> list[RunFile]:
        """The files of the conversation, at most 500, the newest last."""
        return [RunFile.model_validate(each) for each in await self._port().ask("files", {})]

    async def get_artifact(self, ref: str) -> bytes:
        """The content of a file of at most 1 MB. Raises WorkflowError if the conversation has no such file."""
        return base64.b64decode(await self._port().ask("load_file", {"ref": ref}))


class HostingService:
    """Addresses of files."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}

    def get_artifact_url(self, ref: str) -> str:
        """The path of a file's content on the platform, such as of `"fi:<turn_id>.outputs/report.pdf"`. The person's
        own session can open it. Raises WorkflowError if the timeline of this conversation has no such file."""
        if ref not in self._urls:
            raise WorkflowError(f"The conversation has no file {ref!r}.")
        return self._urls[ref]

    def add(self, files: Mapping[str, str]) -> None:
        """Called by the platform with what it knows: the path of each file by its ref."""
        self._urls.update(files)


class BaseWorkflow:
    """Extend it once in `workflow.py` and write `run`.

    Each turn gets a copy of the object that `on_bundle_load` has prepared: `run` finds on `self` what it has put there,
    shared by all turns.
    """

    _port: RunPort | None = None
    _payload: Payload = Payload(text="")
    _segments: int = 0
    _counts: dict[str, int]

    def __init__(self) -> None:
        self.scratchpad: dict[str, Any] = {}
        """For the workflow's own values during one execution of `run`; it is not kept."""
        self.ctx_client = ContextRAGClient(self._require_port)
        """Searches the person's conversations."""
        self.hosting_service = HostingService()
        """Addresses of files."""
        self.models = Models(self._require_port, self._choose_key, WorkflowError)
        """Calls of models."""
        self.store = ConversationStore(self._require_port, self._choose_key)
        """Turns, timeline and files of this conversation."""

    async def run(self, payload: Payload) -> RunResult | str | None:
        """Answer one message. The returned text is the answer of the turn; None keeps the agent's last one."""
        raise NotImplementedError

    def on_bundle_load(self) -> Any:
        """Called when a process has loaded the bundle, before its first turn. If it raises an exception, the bundle
        is refused. It may be async, and has about a minute."""

    def pre_run_hook(self) -> Any:
        """Called before each execution of `run`, including those after a worker was lost. It may be async."""

    def on_turn_end(self) -> Any:
        """Called when `run` has returned or raised an exception, shortly before the turn ends. Its exceptions are only
        logged. It may be async, and has 5 s."""

    def before_round(self, number: int) -> Any:
        """Called before each round in which the agent works. It only observes, as `after_tool` does: its result is not
        used, its exceptions are logged, and it can't begin a step, a call of a model or anything else that is recorded.
        It has 5 s; if it takes longer, it is not called again in this turn. It can be called twice for the same round
        if a worker is lost. It may be async."""

    def after_tool(self, use: ToolUse) -> Any:
        """Called when a tool call of the agent has ended. See `before_round`."""

    async def build_react(
        self,
        scratchpad: object = None,
        tools_module: str | None = None,
        skills_module: str | None = None,
        knowledge_space_fn: Callable[..., Any] | None = None,
        knowledge_read_fn: Callable[..., Any] | None = None,
    ) -> React:
        """The agent with the instructions, tools and skills of the bundle. `tools_module` and `skills_module` can name
        the bundle's descriptors, which are read when the bundle is loaded. Raises WorkflowError if they name others.

        `knowledge_space_fn(query, limit)` answers `react.search_knowledge`, and `knowledge_read_fn(path)` returns the
        text for `react.read` of `ks:` and this path; either may be async. The model gets their exceptions as errors.
        """
        for name, module in (("tools", tools_module), ("skills", skills_module)):
            if module is not None:
                self._check_descriptor(name, module)
        return React(self, scratchpad, knowledge_space_fn, knowledge_read_fn)

    async def step(self, key: str, fn: Callable[..., Any], *args: Any, effect: Effect = "irreversible") -> Any:
        """Call `fn(*args)` once in this turn and return its result, which must be JSON of at most 64 KB.

        The result is recorded under the key. If `run` is executed again, the recorded result is returned, and `fn` is
        not called. `effect` says what happens if a worker was lost during the call: a step that is `pure` or
        `idempotent` is repeated, an `irreversible` one raises StepAmbiguous. Raises StepFailed if the function raises
        an exception or its result can't be recorded. Raises WorkflowError in a step or a knowledge function, if the key
        was used before in this execution, and if the turn has reached a limit.
        """
        _check_outside("self.step")
        port = self._require_port()
        begun = await port.ask("step_begin", {"key": key, "effect": effect})
        match begun["state"]:
            case "done":
                return begun["value"]
            case "failed":
                raise StepFailed(f"The step {key!r} has failed: {begun['error']}")
            case "ambiguous":
                raise StepAmbiguous(
                    f"The step {key!r} was interrupted, so it is unknown whether it took effect; it is not repeated."
                )
            case _:
                pass
        try:
            with run_inside("a step"):
                value = _encode(await port.call(fn, args))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:SENT_ERROR_CHARS]
            await port.ask("step_end", {"key": key, "error": text.encode("utf-8", "replace").decode()})
            raise StepFailed(f"The step {key!r} has failed: {text}") from error
        await port.ask("step_end", {"key": key, "value": value})
        return value

    async def feedback(
        self,
        reaction: Literal["ok", "not_ok", "neutral"],
        text: str = "",
        *,
        confidence: float | None = None,
        key: str | None = None,
    ) -> None:
        """Add feedback of the origin `machine` to this turn, once for each key. By default, the key is the number of
        the call in `run`.

        `confidence` is from 0 to 1, `text` has up to 10,000 characters. A workflow can do this 20 times in a turn. The
        feedback is stored with the agent's answer if that waits for the end of `run`. Raises WorkflowError as `step`
        does.
        """
        _check_outside("self.feedback")
        asked = {"key": self._choose_key("feedback", key), "reaction": reaction, "text": text, "confidence": confidence}
        await self._require_port().ask("feedback", asked)

    async def emit(
        self,
        text: str,
        *,
        marker: str,
        channel: str | None = None,
        format: ChannelFormat = "markdown",
        artifact: str | None = None,
        key: str | None = None,
    ) -> None:
        """Show a text of at most 32,000 characters to clients, once for each key, as with `feedback`.

        The marker is one that clients know, such as `canvas`, or one of `markers` in bundle.toml; the channel has the
        same name by default. A turn can have 100 such texts. The agent does not read them.
        """
        _check_outside("self.emit")
        asked = {
            "key": self._choose_key("emit", key),
            "text": text,
            "marker": marker,
            "channel": channel or marker,
            "format": format,
            "artifact": artifact,
        }
        await self._require_port().ask("emit", asked)

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Those that the author has written."""
        return tuple(hook for hook in HOOKS if getattr(type(self), hook) is not getattr(BaseWorkflow, hook))

    async def observe(self, hook: Hook, arguments: Mapping[str, Any]) -> None:
        """Called by the platform: run a hook, at most for its time."""
        value = ToolUse.model_validate(arguments) if hook == "after_tool" else arguments["number"]
        with run_inside("a hook"):
            async with asyncio.timeout(HOOK_S):
                await self._require_port().call(getattr(self, hook), (value,))

    def attach(self, port: RunPort, payload: Payload, files: Mapping[str, str]) -> "BaseWorkflow":
        """Called by the platform: a copy for one execution of `run`."""
        mine = copy(self)
        mine._port, mine._payload, mine._segments = port, payload, 0
        mine.scratchpad, mine._counts = {}, {}
        mine.ctx_client = ContextRAGClient(mine._require_port)
        mine.models = Models(mine._require_port, mine._choose_key, WorkflowError)
        mine.store = ConversationStore(mine._require_port, mine._choose_key)
        mine.hosting_service = HostingService()
        mine.hosting_service.add(files)
        return mine

    async def _answer(self, react: React, payload: Payload | str) -> RunResult:
        _check_outside("react.run")
        text = payload if isinstance(payload, str) else payload.text
        is_message = isinstance(payload, Payload) and payload.text == self._payload.text
        self._segments += 1
        port = self._require_port()
        asked = {"number": self._segments, "text": None if is_message and self._segments == 1 else text}
        port.serve(react)
        result = RunResult.model_validate(await port.ask("segment", {**asked, "serves": react.served}))
        self.hosting_service.add({file.ref: file.url for file in result.files})
        return result

    def _choose_key(self, kind: str, key: str | None) -> str:
        """The key, by default the number of this call among those of its kind. Raises WorkflowError without a turn."""
        self._require_port()
        self._counts[kind] = number = self._counts.get(kind, 0) + 1
        return str(number) if key is None else key

    def _require_port(self) -> RunPort:
        if self._port is None:
            raise WorkflowError("This works only while a turn runs: in `run`, `pre_run_hook` and `on_turn_end`.")
        return self._port

    def _check_descriptor(self, name: str, module: str) -> None:
        package = type(self).__module__.rpartition(".")[0]
        known = f"{package}.{name}_descriptor"
        if module != known:
            raise WorkflowError(
                f"build_react: {name}_module is {module!r}, but the {name} of this agent are described in {known!r}."
            )
        if importlib.util.find_spec(known) is None:
            raise WorkflowError(f"build_react: {name}_module is {module!r}, but the bundle has no such file.")


def load_workflow(folder: Path, package: str) -> BaseWorkflow | None:
    """The workflow of the bundle in `folder`, which can be imported as `package`; None if it has none. Raises BadTool;
    an exception of the bundle's own code passes."""
    if not (folder / WORKFLOW).is_file():
        return None
    module = importlib.import_module(f"{package}.{WORKFLOW.removesuffix('.py')}")
    found = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, BaseWorkflow) and each.__module__ == module.__name__
    ]
    if not found:
        raise BadTool(f"{WORKFLOW} has no class that extends BaseWorkflow.")
    if len(found) > 1:
        names = ", ".join(sorted(each.__name__ for each in found))
        raise BadTool(f"{WORKFLOW} has {len(found)} classes that extend BaseWorkflow: {names}. Keep one of them.")
    kind = found[0]
    if kind.run is BaseWorkflow.run or not inspect.iscoroutinefunction(kind.run):
        raise BadTool(f"{WORKFLOW}: {kind.__name__} needs a method `async def run(self, payload)`.")
    if len(inspect.signature(kind.run).parameters) != 2:
        raise BadTool(f"{WORKFLOW}: {kind.__name__}.run must have the parameters self and payload.")
    for hook, count in _HOOKS.items():
        try:
            inspect.signature(getattr(kind, hook)).bind(None, *(None,) * count)
        except TypeError as error:
            more = "one parameter beside" if count else "no parameter but"
            raise BadTool(f"{WORKFLOW}: {kind.__name__}.{hook} must have {more} self.") from error
    return kind()


def read_answer(returned: object) -> str | None:
    """The text that `run` has returned. Raises TypeError."""
    match returned:
        case None | str():
            return returned
        case RunResult():
            return returned.text or None
        case _:
            raise TypeError(f"run returned {type(returned).__name__}; return a text, a result of react.run, or None")


def _check_outside(what: str) -> None:
    check_outside(what, WorkflowError)


def _encode(given: object) -> Any:
    """The value as a reader of the record will see it. Raises TypeError, ValueError."""
    try:
        encoded = to_json(given, bytes_mode="base64", inf_nan_mode="null")
    except PydanticSerializationError as error:
        raise TypeError(f"its result can't be recorded as JSON: {error}") from error
    if len(encoded) > MAX_STEP_BYTES:
        raise ValueError(f"its result has {len(encoded)} bytes as JSON; at most {MAX_STEP_BYTES} can be recorded")
    return from_json(encoded)

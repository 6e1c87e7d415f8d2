"""Tools that an operator adds as functions of a Python module: how the configuration describes them, how a signature
becomes a tool, and how the module is loaded."""

import asyncio
import importlib
import importlib.util
import inspect
import json
import typing
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model, model_validator
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from chat_proc.catalog.tool import Rendered, Strategy, Tool, ToolCall, ToolEvents, ToolOutcome, ToolSpec
from everturn.core.errors import Invalid
from everturn.turns.model import Effect

NAME = r"^[a-z][a-z0-9_]{0,39}$"
MAX_TIMEOUT_S = 300.0

APPROVAL_NOTICE = (
    "A person has to approve each call to this tool; this can take a long time, and the call may be denied."
    " It can only be called as an action, not from a program."
)
_JSON: TypeAdapter[object] = TypeAdapter(object)

TOOL_THREADS = 8
"""Concurrent functions that are not async; more of them wait."""


class DescribedTool(BaseModel):
    """One function. Defaults are cautious: a call counts as irreversible. Set `untrusted` if the output contains text
    of third parties. `in_loop` offers the tool to the model, not only to programs. With `requires_approval` a person
    has to approve each call, and programs can't make one. `addresses` names the parameters with web addresses that the
    function requests: the rules of WEB_FETCH apply to them. With `asks_after_untrusted` a call needs approval once the
    conversation has read untrusted text. `strategy` decides which other tools may be called in the same reply; by
    default none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    effect: Effect = Effect.IRREVERSIBLE
    timeout_s: float = Field(default=60.0, gt=0, le=MAX_TIMEOUT_S)
    untrusted: bool = False
    in_loop: bool = True
    in_programs: bool = True
    requires_approval: bool = False
    strategy: Strategy = "unknown"
    addresses: tuple[str, ...] = ()
    asks_after_untrusted: bool = False

    @model_validator(mode="after")
    def check_callers(self) -> "DescribedTool":
        if self.requires_approval and ("in_programs" in self.model_fields_set and self.in_programs):
            raise ValueError(
                "a program can't wait for a person: set in_programs = false for a tool with requires_approval"
            )
        if self.requires_approval and not self.in_loop:
            raise ValueError("only the loop can call a tool with requires_approval: set in_loop = true")
        return self


class ToolModule(BaseModel):
    """A module by its import name, or a file; only the functions named in `tools` are offered, as `alias.name`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alias: str = Field(pattern=NAME)
    module: str | None = None
    file: Path | None = None
    tools: Mapping[str, DescribedTool] = Field(min_length=1)

    @model_validator(mode="after")
    def check_place(self) -> "ToolModule":
        if (self.module is None) == (self.file is None):
            raise ValueError("name either a module or a file")
        if private := [name for name in self.tools if name.startswith("_")]:
            raise ValueError(f"{private[0]} is private to its module")
        return self


class FunctionTool:
    """A Python function as a tool: its signature gives the parameters, its docstring the guide for the model.

    Calls the function with checked arguments; its exceptions become typed errors at the tool-call edge.

    A parameter annotated with ToolEvents is not an argument of the tool: it receives the events of the call. A function
    that is not async runs in a thread, which keeps running if the call is given up.
    """

    def __init__(self, tool_id: str, function: Callable[..., Any], described: DescribedTool, threads: Executor) -> None:
        """Raises Invalid if the signature is unsuitable for a tool."""
        self._function = function
        self._threads = threads
        hints = _read_hints(tool_id, function)
        self._events = next((name for name, hint in hints.items() if hint is ToolEvents), None)
        doc = inspect.getdoc(function) or tool_id
        self.spec = ToolSpec(
            tool_id=tool_id,
            summary=doc.partition("\n\n")[0].replace("\n", " "),
            guide=f"{doc}\n\n{APPROVAL_NOTICE}" if described.requires_approval else doc,
            params=_build_params(tool_id, function, hints),
            effect=described.effect,
            strategy=described.strategy,
            timeout_s=described.timeout_s,
            in_loop=described.in_loop,
            in_programs=described.in_programs and not described.requires_approval,
            requires_approval=described.requires_approval,
            returns=_describe_type(hints.get("return", Any)),
            untrusted=described.untrusted,
            addresses=described.addresses,
            asks_after_untrusted=described.asks_after_untrusted,
        )
        if unknown := set(described.addresses) - set(self.spec.params.model_fields):
            raise Invalid(f"{tool_id}: `addresses` names {min(unknown)!r}, which is not one of its parameters.")

    async def run(self, call: ToolCall) -> ToolOutcome:
        arguments = {name: getattr(call.params, name) for name in type(call.params).model_fields}
        events = ToolEvents(call, self.spec.tool_id)
        if self._events is not None:
            arguments[self._events] = events
        try:
            given = await self._call(arguments)
        finally:
            events.close()
        if isinstance(given, Rendered):
            return ToolOutcome("ok", given.text, value=given, untrusted=self.spec.untrusted)
        value = _JSON.dump_python(given, mode="python" if isinstance(given, bytes) else "json")
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return ToolOutcome("ok", text, value=value, untrusted=self.spec.untrusted)

    async def _call(self, arguments: dict[str, Any]) -> object:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: self._function(**arguments))


def _read_hints(tool_id: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise Invalid(f"{tool_id}: can't read its annotations: {error}") from error


def _build_params(tool_id: str, function: Callable[..., Any], hints: dict[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if hints.get(name) is ToolEvents:
            continue
        if name not in hints:
            raise Invalid(f"{tool_id}: the parameter {name!r} has no type.")
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise Invalid(f"{tool_id}: the parameter {name!r} must accept a keyword argument.")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    try:
        config = ConfigDict(frozen=True, extra="forbid")
        model = create_model(f"{tool_id.replace('.', '_')}_params", __config__=config, **fields)
        model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, NameError, TypeError) as error:
        raise Invalid(f"{tool_id}: can't describe its parameters: {error}") from error
    return model


def _describe_type(hint: Any) -> str:
    return "any value" if hint is Any else str(getattr(hint, "__name__", hint)) if hint is not type(None) else "None"


class BadToolModule(Invalid):
    """A tool module that the configuration names can't be used."""


@contextmanager
def open_tool_threads() -> Generator[ThreadPoolExecutor]:
    """Threads for tools that are plain functions; one that never ends keeps its thread, and shutdown does not wait for
    it."""
    threads = ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tool")
    try:
        yield threads
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def load_tools(described: Iterable[ToolModule], threads: Executor) -> tuple[Tool, ...]:
    """The tools in the order of the descriptors. `threads` run functions that are not async. Raises BadToolModule.

    The code is the operator's own: it runs in this process with all its privileges.
    """
    return tuple(tool for entry in described for tool in _load_entry(entry, threads))


def _load_entry(entry: ToolModule, threads: Executor) -> list[FunctionTool]:
    module = _load_module(entry)
    tools: list[FunctionTool] = []
    for name, described in entry.tools.items():
        function = getattr(module, name, None)
        if not inspect.isfunction(function):
            raise BadToolModule(f"{entry.alias}: {module.__name__} has no function {name!r}.")
        try:
            tools.append(FunctionTool(f"{entry.alias}.{name}", function, described, threads))
        except Invalid as invalid:
            raise BadToolModule(invalid.detail) from invalid
    return tools


def _load_module(entry: ToolModule) -> ModuleType:
    try:
        if entry.module is not None:
            return importlib.import_module(entry.module)
        return _load_file(entry)
    except (ImportError, OSError, SyntaxError) as error:
        raise BadToolModule(f"{entry.alias}: {entry.module or entry.file} can't be loaded: {error}") from error


def _load_file(entry: ToolModule) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"everturn_tools_{entry.alias}", str(entry.file))
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

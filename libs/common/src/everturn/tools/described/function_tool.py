"""A Python function as a tool: its signature gives the parameters, its docstring what the model is told."""

import asyncio
import inspect
import json
import typing
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from everturn.errors import Invalid
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec
from everturn.tools.described.descriptor import DescribedTool
from everturn.tools.emitting import ToolEvents

ASKS_FIRST = (
    "A person is asked before each call of this tool, which may take long; the call may be denied."
    " It can only be called as an action, not from a program."
)
_JSON: TypeAdapter[object] = TypeAdapter(object)


class FunctionTool:
    """Calls the function with checked arguments; what it raises becomes a typed error at the edge that called us.

    A parameter annotated with ToolEvents is no argument of the tool: it gets the events of the call. A function that
    is not async runs in a thread, which goes on when the call is given up.
    """

    def __init__(self, tool_id: str, function: Callable[..., Any], told: DescribedTool, threads: Executor) -> None:
        """Raises Invalid when the signature can't be one of a tool."""
        self._function = function
        self._threads = threads
        hints = _read_hints(tool_id, function)
        self._events = next((name for name, hint in hints.items() if hint is ToolEvents), None)
        doc = inspect.getdoc(function) or tool_id
        self.spec = ToolSpec(
            tool_id=tool_id,
            summary=doc.partition("\n\n")[0].replace("\n", " "),
            guide=f"{doc}\n\n{ASKS_FIRST}" if told.requires_approval else doc,
            params=_build_params(tool_id, function, hints),
            effect=told.effect,
            strategy=told.strategy,
            timeout_s=told.timeout_s,
            in_loop=told.in_loop,
            in_programs=told.in_programs and not told.requires_approval,
            requires_approval=told.requires_approval,
            returns=_tell_type(hints.get("return", Any)),
            untrusted=told.untrusted,
            addresses=told.addresses,
            asks_after_untrusted=told.asks_after_untrusted,
        )
        if unknown := set(told.addresses) - set(self.spec.params.model_fields):
            raise Invalid(f"{tool_id}: `addresses` names {min(unknown)!r}, which is none of its parameters.")

    async def run(self, call: ToolCall) -> ToolOutcome:
        arguments = {name: getattr(call.params, name) for name in type(call.params).model_fields}
        events = ToolEvents(call, self.spec.tool_id)
        if self._events is not None:
            arguments[self._events] = events
        try:
            given = await self._call(arguments)
        finally:
            events.close()
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
        raise Invalid(f"{tool_id}: its annotations can't be read: {error}") from error


def _build_params(tool_id: str, function: Callable[..., Any], hints: dict[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if hints.get(name) is ToolEvents:
            continue
        if name not in hints:
            raise Invalid(f"{tool_id}: the parameter {name!r} has no type.")
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise Invalid(f"{tool_id}: the parameter {name!r} can't be given by name.")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    try:
        config = ConfigDict(frozen=True, extra="forbid")
        model = create_model(f"{tool_id.replace('.', '_')}_params", __config__=config, **fields)
        model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, NameError, TypeError) as error:
        raise Invalid(f"{tool_id}: its parameters can't be described: {error}") from error
    return model


def _tell_type(hint: Any) -> str:
    return "any value" if hint is Any else str(getattr(hint, "__name__", hint)) if hint is not type(None) else "None"

"""Reads which functions of a bundle are tools: from tools_descriptor.py, or from the tables `[[tools]]` of
bundle.toml."""

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from everturn_sdk.protocol import BundleDescription, McpTools
from everturn_sdk.tools import BadTool, ToolFunction, ToolOptions, explain_problems, find_options

DESCRIPTOR = "tools_descriptor.py"
_NAME = r"^[a-z][a-z0-9_]{0,39}$"
_FUNCTION = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")
_LISTS = ("TOOLS_SPECS", "MCP_TOOL_SPECS")
RESERVED = "mcp"
"""The alias of the tools of MCP servers."""


class ToolsEntry(BaseModel):
    """An entry of TOOLS_SPECS or `[[tools]]`: a `module` by its import name, or a file by its `ref`, relative to the
    bundle. Its functions marked with `@tool` are offered as `alias.function`; those in `tools` need no mark."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alias: str = Field(pattern=_NAME)
    module: str | None = None
    ref: str | None = None
    tools: Mapping[str, ToolOptions] = {}

    @model_validator(mode="after")
    def check_place(self) -> "ToolsEntry":
        if (self.module is None) == (self.ref is None):
            raise ValueError("name either a module or a ref")
        if self.alias == RESERVED:
            raise ValueError(f"the alias {RESERVED!r} is reserved for the tools of MCP servers")
        return self

    @property
    def place(self) -> str:
        return self.module or self.ref or ""


class LoadedTools:
    """The tools of a bundle by id, and its description for the worker."""

    def __init__(self, functions: Sequence[ToolFunction], mcp: Sequence[McpTools]) -> None:
        self.functions = {function.tool_id: function for function in functions}
        self.description = BundleDescription(
            tools=tuple(function.description for function in functions), mcp=tuple(mcp)
        )


def load_bundle_tools(folder: Path, package: str, described: Sequence[Mapping[str, Any]]) -> LoadedTools:
    """Load the tools of the bundle in `folder`, which can be imported as `package`. Raises BadTool; an exception of the
    bundle's own modules passes."""
    entries = _read_entries((f"tools {number} of bundle.toml" for number in count(1)), described)
    runtime: Mapping[object, object] = {}
    mcp: list[McpTools] = []
    if (folder / DESCRIPTOR).is_file():
        descriptor = importlib.import_module(f"{package}.{DESCRIPTOR.removesuffix('.py')}")
        specs, mcp_specs = (_read_list(descriptor, name) for name in _LISTS)
        entries |= _read_entries((f"TOOLS_SPECS[{number}] of {DESCRIPTOR}" for number in count()), specs)
        mcp = [_read_mcp(number, each) for number, each in enumerate(mcp_specs)]
        runtime = _read_runtime(descriptor)
    _check_aliases({place: entry.alias for place, entry in entries.items()})
    _check_aliases({f"MCP_TOOL_SPECS[{number}] of {DESCRIPTOR}": each.alias for number, each in enumerate(mcp)})
    functions = [function for entry in entries.values() for function in _load_functions(entry, folder, package)]
    _check_runtime(runtime, {function.tool_id for function in functions})
    return LoadedTools(functions, mcp)


def _read_entries(places: Iterable[str], values: Sequence[object]) -> dict[str, ToolsEntry]:
    """The entries by their places."""
    return {place: _read_entry(place, each) for place, each in zip(places, values, strict=False)}


def _read_entry(place: str, value: object) -> ToolsEntry:
    try:
        return ToolsEntry.model_validate(value)
    except ValidationError as error:
        raise BadTool(f"{place}: {explain_problems(error)}") from error


def _read_mcp(number: int, value: object) -> McpTools:
    try:
        return McpTools.model_validate(value)
    except ValidationError as error:
        raise BadTool(f"MCP_TOOL_SPECS[{number}] of {DESCRIPTOR}: {explain_problems(error)}") from error


def _read_list(descriptor: ModuleType, name: str) -> list[object]:
    value = getattr(descriptor, name, [])
    if not isinstance(value, list | tuple):
        raise BadTool(f"{name} of {DESCRIPTOR} must be a list.")
    return [*cast("Sequence[object]", value)]


def _read_runtime(descriptor: ModuleType) -> Mapping[object, object]:
    value = getattr(descriptor, "TOOL_RUNTIME", {})
    if not isinstance(value, dict):
        raise BadTool(f"TOOL_RUNTIME of {DESCRIPTOR} must be a dictionary.")
    return cast("Mapping[object, object]", value)


def _check_runtime(runtime: Mapping[object, object], tool_ids: Iterable[str]) -> None:
    known = set(tool_ids)
    for tool_id, value in runtime.items():
        if tool_id not in known:
            raise BadTool(f"TOOL_RUNTIME names the tool {tool_id!r}, which does not exist.")
        if value not in ("local", "none"):
            raise BadTool(
                f"TOOL_RUNTIME[{tool_id!r}] is {value!r}; tools run in the process of their bundle, so write 'local'."
            )


def _check_aliases(aliases: Mapping[str, str]) -> None:
    """Check that no two places have the same alias."""
    first: dict[str, str] = {}
    for place, alias in aliases.items():
        if alias in first:
            raise BadTool(f"{place}: The alias {alias!r} is also that of {first[alias]}. Change one.")
        first[alias] = place


def _load_functions(entry: ToolsEntry, folder: Path, package: str) -> list[ToolFunction]:
    module = _load_module(entry, folder, package)
    marked = {name: options for name, each in vars(module).items() if (options := find_options(each)) is not None}
    offered: dict[str, ToolOptions] = {**marked, **entry.tools}
    if not offered:
        raise BadTool(f"{entry.place} has no function that is marked with @tool.")
    functions: list[ToolFunction] = []
    for name, options in offered.items():
        function = getattr(module, name, None)
        if not inspect.isfunction(function):
            raise BadTool(f"{entry.place} has no function {name!r}.")
        if not _FUNCTION.fullmatch(name):
            raise BadTool(f"{entry.alias}.{name}: a tool's name has up to 60 letters, digits and underscores.")
        functions.append(ToolFunction(f"{entry.alias}.{name}", function, options))
    return functions


def _load_module(entry: ToolsEntry, folder: Path, package: str) -> ModuleType:
    if entry.module is not None:
        return importlib.import_module(entry.module)
    ref = entry.ref or ""
    file = (folder / ref).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise BadTool(f"{entry.alias}: {ref} is not in the bundle.")
    if file.suffix != ".py" or not file.is_file():
        raise BadTool(f"{entry.alias}: {ref} is not a Python file of the bundle.")
    parts = file.relative_to(folder.resolve()).with_suffix("").parts
    if all(part.isidentifier() for part in parts):
        return importlib.import_module(".".join((package, *parts)))
    spec = importlib.util.spec_from_file_location(f"everturn_tools_{entry.alias}", file)
    if spec is None or spec.loader is None:
        raise BadTool(f"{entry.alias}: {ref} can't be loaded.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""The names by which a program calls tools: `await alias.name(argument=value)`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest

Parameters = tuple[str, ...]

CallTool = Callable[[str, dict[str, object]], Awaitable[object]]
"""Calls a tool by its id and returns its value."""


class ToolAlias:
    """All granted tools of one alias as asynchronous functions that accept keyword arguments."""

    def __init__(self, alias: str, names: Mapping[str, Parameters], call: CallTool) -> None:
        self._alias = alias
        self._names = names
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        if name not in self._names:
            known = ", ".join(sorted(self._names))
            raise AttributeError(f"{self._alias} has no tool {name!r} in this run; it has: {known}")
        tool_id = f"{self._alias}.{name}"

        def call_tool(*values: object, **arguments: object) -> Awaitable[object]:
            return self._call(tool_id, {**name_values(tool_id, self._names[name], values, arguments), **arguments})

        call_tool.__name__ = name
        return call_tool

    def __dir__(self) -> list[str]:
        return sorted(self._names)

    def __repr__(self) -> str:
        return f"<tools {self._alias}: {', '.join(sorted(self._names))}>"


def name_values(
    tool_id: str, parameters: Parameters, values: tuple[object, ...], named: Mapping[str, object]
) -> dict[str, object]:
    """The positional arguments by name. Raises TypeError as a function call does."""
    if len(values) > len(parameters):
        known = ", ".join(parameters) or "none"
        raise TypeError(f"{tool_id} takes {len(parameters)} arguments, {len(values)} were given; they are: {known}")
    placed = dict(zip(parameters, values, strict=False))
    if twice := sorted(placed.keys() & named.keys()):
        raise TypeError(f"{tool_id} got the argument {twice[0]!r} twice")
    return placed


def build_stubs(tool_ids: Sequence[str], call: CallTool, parameters: Sequence[Parameters] = ()) -> dict[str, ToolAlias]:
    """One object per alias; a tool id is `alias.name`. `parameters` has the parameter names of each tool, in order."""
    tools: dict[str, dict[str, Parameters]] = {}
    for tool_id, names in zip_longest(tool_ids, parameters[: len(tool_ids)], fillvalue=()):
        alias, _, name = str(tool_id).partition(".")
        tools.setdefault(alias, {})[name] = tuple(names)
    return {alias: ToolAlias(alias, found, call) for alias, found in tools.items()}

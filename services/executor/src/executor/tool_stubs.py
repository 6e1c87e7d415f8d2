"""The names a program calls tools by: `await alias.name(argument=value)`."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol


class CallTool(Protocol):
    """Calls a tool by its id and returns its value."""

    def __call__(self, tool_id: str, arguments: dict[str, object], /) -> Awaitable[object]: ...


class ToolAlias:
    """All granted tools of one alias as asynchronous functions that take keyword arguments."""

    def __init__(self, alias: str, names: frozenset[str], call: CallTool) -> None:
        self._alias = alias
        self._names = names
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        if name not in self._names:
            known = ", ".join(sorted(self._names))
            raise AttributeError(f"{self._alias} has no tool {name!r} in this run; it has: {known}")
        tool_id = f"{self._alias}.{name}"

        def call_tool(**arguments: object) -> Awaitable[object]:
            return self._call(tool_id, arguments)

        call_tool.__name__ = name
        return call_tool

    def __dir__(self) -> list[str]:
        return sorted(self._names)

    def __repr__(self) -> str:
        return f"<tools {self._alias}: {', '.join(sorted(self._names))}>"


def build_stubs(tool_ids: Iterable[str], call: CallTool) -> dict[str, ToolAlias]:
    """One object per alias; a tool id is `alias.name`."""
    names: dict[str, set[str]] = {}
    for tool_id in tool_ids:
        alias, _, name = tool_id.partition(".")
        names.setdefault(alias, set()).add(name)
    return {alias: ToolAlias(alias, frozenset(found), call) for alias, found in names.items()}

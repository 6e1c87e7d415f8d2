"""Loads the modules that an operator names and makes tools of their functions, once, at the start of a worker."""

import importlib
import importlib.util
import inspect
from collections.abc import Generator, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType

from everturn.errors import Invalid
from everturn.ports.tool import Tool
from everturn.tools.described.descriptor import ToolModule
from everturn.tools.described.function_tool import FunctionTool

TOOL_THREADS = 8
"""Functions that are not async and work at a time; more of them wait."""


class BadToolModule(Invalid):
    """A tool module that the configuration names can't be used."""


@contextmanager
def open_tool_threads() -> Generator[ThreadPoolExecutor]:
    """Threads for tools that are plain functions; one that never ends keeps its thread, and nobody waits for it."""
    threads = ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tool")
    try:
        yield threads
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def load_tools(described: Iterable[ToolModule], threads: Executor) -> tuple[Tool, ...]:
    """The tools in the order of the descriptors. `threads` run functions that are not async. Raises BadToolModule.

    The code is the operator's own: it runs in this process with all of its rights.
    """
    return tuple(tool for entry in described for tool in _load_entry(entry, threads))


def _load_entry(entry: ToolModule, threads: Executor) -> list[FunctionTool]:
    module = _load_module(entry)
    tools: list[FunctionTool] = []
    for name, told in entry.tools.items():
        function = getattr(module, name, None)
        if not inspect.isfunction(function):
            raise BadToolModule(f"{entry.alias}: {module.__name__} has no function {name!r}.")
        try:
            tools.append(FunctionTool(f"{entry.alias}.{name}", function, told, threads))
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
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

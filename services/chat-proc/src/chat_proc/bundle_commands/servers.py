"""Starts the MCP servers of a bundle that have a command, as a worker does, and says what does not work."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chat_proc.bundle_commands.imports import NOT_FOUND, find_wrong_imports
from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.host.environments import REQUIREMENTS
from chat_proc.bundles.host.host_process import HostOptions
from chat_proc.catalog.mcp_servers import OfferedServer
from chat_proc.catalog.tool import ToolSpec
from chat_proc.settings import WorkerSettings
from chat_proc.tools.web.resolver import NameResolver
from everturn.files.opening import open_objects

START_WITHIN_S: Final = 60.0
"""How long all servers together may take. A command may have to download its server first."""


@dataclass(frozen=True, slots=True)
class TriedServers:
    """The tools of servers that were reached. `problems` are pairs of an alias and a reason."""

    tools: tuple[ToolSpec, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()


async def try_servers(
    bundle: Bundle,
    chosen: Sequence[OfferedServer],
    found: Mapping[str, str],
    settings: WorkerSettings,
    hosts: HostOptions,
    *,
    installs: bool,
) -> TriedServers:
    """Start the commands, wait until each was reached or has failed, and end them. `found` are the values of secrets by
    the names of their references. Servers with a url are not contacted."""
    # Imported here, because the SDK takes 0.6 s.
    from chat_proc.mcp.stdio import PYTHONS, ChildOptions
    from chat_proc.mcp.tools import McpDependencies, open_servers

    requirements, problems = bundle.files.get(REQUIREMENTS, b""), list[tuple[str, str]]()
    is_installed = installs or not requirements.strip() or hosts.environments.has(requirements)
    started: list[OfferedServer] = []
    of_libraries = {each.alias for each in chosen if each.server.command in PYTHONS and each.owner}
    for each in chosen:
        if each.alias in of_libraries and not is_installed:
            why = f"It was not started, because the libraries of {REQUIREMENTS} are not installed. Add --install"
            problems.append((each.alias, why))
        elif each.server.command is not None:
            started.append(each)
    if not started:
        return TriedServers((), tuple(problems))

    async def ignore(_: object) -> None: ...

    children = ChildOptions(settings.search_path, hosts.environments, hosts.uids, hosts.variables)
    names = NameResolver()
    try:
        with open_objects(settings.objects_url) as objects:
            async with open_servers(
                started,
                McpDependencies(objects, names.resolve, children=children),
                find_secret=found.get,
                on_change=ignore,
                files=bundle.files,
                ready_within_s=0,
            ) as servers:
                silent = await find_silent(servers.wait_for_attempts)
                lines = servers.list_problems()
                tools = tuple(tool.spec for tool in servers.tools)
    finally:
        names.close()
    for line in lines:
        place, _, why = line.partition(": ")
        alias = place.removeprefix("mcp.")
        if alias in of_libraries and "ModuleNotFoundError: " in why:
            args = next(each.server.args for each in started if each.alias == alias)
            is_own = any(problem.file in args for problem in find_wrong_imports(bundle))
            why = f"{why}. {'Correct its import' if is_own else NOT_FOUND}"
        problems.append((alias, silent.get(alias, why)))
    return TriedServers(tools, tuple(problems))


async def find_silent(wait_for_attempts: Callable[[float], Awaitable[Sequence[str]]]) -> Mapping[str, str]:
    """What is wrong with each server that neither answers nor fails in time, by alias."""
    why = f"The server neither answered nor failed within {START_WITHIN_S:g} s."
    return dict.fromkeys(await wait_for_attempts(START_WITHIN_S), why)

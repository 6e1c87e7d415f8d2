"""What is wrong with the code, knowledge and servers of a bundle. Its modules are loaded in their own process, and its
servers that have a command are started, as a worker does."""

import ast
import asyncio
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Final

from chat_proc.bundle_commands.bootstrap import build_settings
from chat_proc.bundle_commands.imports import NOT_FOUND, advise_import, find_wrong_imports, parse_if_valid
from chat_proc.bundle_commands.playing import collect_logs
from chat_proc.bundle_commands.servers import TriedServers, try_servers
from chat_proc.bundles.bundle import Bundle, find_skipped
from chat_proc.bundles.host.environments import REQUIREMENTS, BadRequirements, check_requirements
from chat_proc.bundles.host.host import open_bundle_host
from chat_proc.bundles.manifest import MANIFEST, Problem, find_line
from chat_proc.bundles.policy import Condition
from chat_proc.catalog.mcp_servers import (
    TOOLS_DESCRIPTOR,
    OfferedServer,
    choose_servers,
    find_references,
    read_tool_specs,
)
from chat_proc.catalog.tool import ToolSpec
from chat_proc.knowledge.passages import find_broken_links, find_folders
from chat_proc.knowledge.trees import FolderTree, TreeLimits
from chat_proc.opening import build_host_options, find_mcp_secrets
from chat_proc.settings import OperatorConfig, WorkerSettings
from chat_proc.tools.hosted import check_builtin_tools, read_operations, read_specs, try_build_code
from chat_proc.tools.offered import BUILTIN_TOOLS
from everturn.core.errors import EverturnError, Invalid
from everturn.core.settings import load_bundle_secrets, name_place
from everturn.skills.model import Skills
from everturn_sdk.descriptors import DESCRIPTOR
from everturn_sdk.protocol import BundleDescription
from everturn_sdk.workflows import WORKFLOW

MAX_LISTED: Final = 20
"""Warnings of one kind, such as broken links."""
DESCRIBED: Final = ("TOOLS_SPECS", "MCP_TOOL_SPECS")
"""What the descriptor can set."""
_PLACE: Final = re.compile(r"([\w./-]{1,400}\.[a-z]{2,4}), line (\d{1,7}):? (.*)", re.DOTALL)
_RAISED_AT: Final = re.compile(r" \(([\w.-]{1,200}\.py), line (\d{1,7})\)$")
_ENTRY: Final = re.compile(r"(TOOLS_SPECS\[|MCP_TOOL_SPECS\[|tools )(\d{1,4})\]? of [\w.]{1,40}: ")
_TOOL: Final = re.compile(r"([a-z][a-z0-9_]{0,39})\.([A-Za-z][A-Za-z0-9_]{0,59}): ")
_TWICE: Final = re.compile(r"Two tools have the id '([a-z][a-z0-9_]{0,39})\.([A-Za-z][A-Za-z0-9_]{0,59})'")
_REF: Final = re.compile(r"([a-z][a-z0-9_]{0,39}): (.{1,400}) (?:is not a Python file of|is not in) the bundle$")
_ABSENT: Final = re.compile(r"No such file or directory: '(.{1,400})'$")
_OWN_FILE: Final = 'Path(__file__).parent / "NAME"'
_SKILL_REF: Final = re.compile(r"sk:([a-z0-9_-]{1,64}\.[a-z0-9-]{1,64})/([\w./-]{1,200})")
_UNSET: Final = "MissingSetting: This agent has no secret"


@dataclass(slots=True)
class CodeReport:
    """`problems` are reasons for workers to refuse the bundle; `parts` says what it has, such as `3 tools`."""

    manifest_text: str
    """The content of bundle.toml, for finding lines."""
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])
    parts: list[str] = field(default_factory=list[str])
    tools: list[str] = field(default_factory=list[str])
    """The ids of its own tools, and of those of the MCP servers that were started."""


def check_code(bundle: Bundle, folder: Path, skills: Skills, config: OperatorConfig, *, installs: bool) -> CodeReport:
    """Check what `read_folder` does not. With `installs` the libraries of the bundle are installed if they are not;
    otherwise its modules can only be loaded if they are."""
    report = CodeReport((folder / MANIFEST).read_text(encoding="utf-8-sig"))
    with tempfile.TemporaryDirectory(prefix="everturn-check-") as private, collect_logs():
        settings = build_settings(Path(private))
        secrets = load_bundle_secrets(settings.secrets_dir, bundle.id)
        trees = list(_parse(bundle, report))
        if not config.tools:
            _check_names(bundle, report)
        _check_settings(bundle, trees, secrets, report)
        if (code := try_build_code(bundle, secrets)) is not None:
            _check_workflow(trees, code.package, report)
        usable = _check_servers(bundle, folder, config, settings, secrets, report)
        _check_tokens(bundle, secrets, report)
        own: Sequence[ToolSpec] | None = None
        started = TriedServers()
        if not report.problems:
            own = asyncio.run(_check_process(bundle, settings, secrets, report, installs=installs))
        if usable and not report.problems:
            started = asyncio.run(_start_servers(bundle, usable, settings, secrets, report, installs=installs))
        report.tools += [spec.tool_id for spec in (*(own or ()), *started.tools)]
        if own is not None:
            _check_descriptor(trees, report)
            _check_marks(trees, own, report)
            _check_policy(bundle, own, started.tools, config, report)
        _check_imports(bundle, report)
        _check_skills(skills, report)
        asyncio.run(_check_knowledge(bundle, folder, report))
        if bundle.widgets:
            report.parts.append(_count(len(bundle.widgets), "widget"))
    return report


def place_problem(detail: str) -> Problem:
    """A message that may begin with its file and line."""
    if match := _PLACE.fullmatch(detail.rstrip(".")):
        return Problem(match[3], match[1], int(match[2]))
    return Problem(detail.rstrip("."))


def _parse(bundle: Bundle, report: CodeReport) -> Iterator[tuple[str, ast.Module]]:
    """The modules of the bundle; scripts of skills run elsewhere."""
    for name, content in bundle.files.items():
        if not name.endswith(".py") or name.startswith("skills/"):
            continue
        try:
            yield name, ast.parse(content)
        except SyntaxError as error:
            report.problems.append(Problem(f"The code is not valid: {error.msg}", name, error.lineno))
        except (RecursionError, MemoryError):
            report.problems.append(Problem("The code is nested too deeply", name))
        except ValueError as error:
            report.problems.append(Problem(f"The code can't be read: {error}", name))


def _check_marks(trees: Sequence[tuple[str, ast.Module]], own: Sequence[ToolSpec], report: CodeReport) -> None:
    """Warn of functions that are marked as tools, and are none or return nothing."""
    offered = {spec.tool_id.rpartition(".")[2] for spec in own}
    for name, tree in trees:
        if not any(isinstance(node, ast.ImportFrom) and node.module == "everturn_sdk" for node in ast.walk(tree)):
            continue
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            marks = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
            if not any(isinstance(mark, ast.Name) and mark.id == "tool" for mark in marks):
                continue
            if _lacks_return(node):
                why = f"{node.name} has a type for its result, but no return, so the model gets null"
                report.warnings.append(Problem(why, name, node.lineno))
            if node.name not in offered:
                places = f"neither TOOLS_SPECS of {TOOLS_DESCRIPTOR} nor [[tools]] of {MANIFEST}"
                why = f"{node.name} is marked with @tool, but {places} names this file"
                report.warnings.append(Problem(why, name, node.lineno))


def _lacks_return(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function that says what it returns neither returns anything nor raises."""
    returns = function.returns
    if returns is None or (isinstance(returns, ast.Constant) and returns.value is None):
        return False
    rest: list[ast.AST] = list(function.body)
    while rest:
        node = rest.pop()
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Return) and node.value):
            return False
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            rest += ast.iter_child_nodes(node)
    return True


def _check_descriptor(trees: Sequence[tuple[str, ast.Module]], report: CodeReport) -> None:
    """Warn of a descriptor that describes nothing."""
    for tree in (tree for name, tree in trees if name == TOOLS_DESCRIPTOR):
        assigned = {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if not assigned & set(DESCRIBED):
            like = {name: close for name in sorted(assigned) if (close := get_close_matches(name, DESCRIBED, n=1))}
            hints = [f". Perhaps you mean {close[0]} in place of {name}" for name, close in like.items()]
            why = f"It sets neither {' nor '.join(DESCRIBED)}, so it has no effect{''.join(hints[:1])}"
            report.warnings.append(Problem(why, TOOLS_DESCRIPTOR))


def _check_workflow(trees: Sequence[tuple[str, ast.Module]], package: str, report: CodeReport) -> None:
    """Warn of a descriptor that `build_react` refuses in each turn."""
    known = f"{package}.{TOOLS_DESCRIPTOR.removesuffix('.py')}"
    for node in (node for name, tree in trees if name == WORKFLOW for node in ast.walk(tree)):
        match node:
            case ast.keyword(arg="tools_module", value=ast.Constant(value=str(given))) if given != known:
                why = f"tools_module is {given!a}, so each turn fails. Write {known!a}, or leave it out"
                report.warnings.append(Problem(why, WORKFLOW, node.lineno))
            case _:
                pass


def _check_imports(bundle: Bundle, report: CodeReport) -> None:
    """Warn of imports of the bundle's own files that fail when they are reached, unless one has failed already."""
    failed = {(problem.file, problem.line) for problem in report.problems}
    found = find_wrong_imports(bundle)
    report.warnings += [problem for problem in found if (problem.file, problem.line) not in failed]


def _check_names(bundle: Bundle, report: CodeReport) -> None:
    """What the manifest says about tools of the platform, if the operator has no others."""
    try:
        check_builtin_tools(bundle.manifest.builtin_tools, ())
    except Invalid as error:
        report.problems.append(_at_key(report, error.detail.removeprefix("builtin_tools: "), "builtin_tools"))


def _at_key(report: CodeReport, message: str, *place: str | int) -> Problem:
    return Problem(message.rstrip("."), MANIFEST, find_line(report.manifest_text, place), name_place(place))


def _check_settings(
    bundle: Bundle, trees: Sequence[tuple[str, ast.Module]], secrets: Mapping[str, str], report: CodeReport
) -> None:
    """Warn of secrets and settings that the code asks for by a literal name, and nobody sets."""
    for name, tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(value=str(asked)), *rest]
                ):
                    is_set = bool(rest or node.keywords) or _has_setting(bundle, asked)
                case _:
                    continue
            if called == "get_secret" and not asked.startswith("b:"):
                why = f"{asked!a} is not the name of a secret; write 'b:{asked}'"
            elif called == "get_secret" and asked.removeprefix("b:") not in secrets:
                secret = asked.removeprefix("b:")
                why = (
                    f"The secret {asked!a} is not set here. An operator puts it into the file "
                    f"bundles/{bundle.id}/{secret} in the folder SECRETS_DIR"
                )
            elif called == "get_plain" and not is_set:
                why = f"[settings] of {MANIFEST} has no {asked!a}, and the call has no default"
            else:
                continue
            report.warnings.append(Problem(why, name, node.lineno))


def _has_setting(bundle: Bundle, path: str) -> bool:
    found: object = bundle.manifest.settings
    for part in path.removeprefix("b:").split("."):
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True


def _check_servers(
    bundle: Bundle,
    folder: Path,
    config: OperatorConfig,
    settings: WorkerSettings,
    secrets: Mapping[str, str],
    report: CodeReport,
) -> list[OfferedServer]:
    """The servers whose secrets are all set."""
    try:
        specs = read_tool_specs(bundle.files.get(TOOLS_DESCRIPTOR, b""))
        chosen = choose_servers(bundle.manifest.mcp, config.mcp, specs, bundle.id)
    except Invalid as error:
        problem = place_problem(error.detail)
        # A file with a mistake in its syntax is reported already.
        if not any((each.file, each.line) == (problem.file, problem.line) for each in report.problems):
            report.problems.append(problem)
        return []
    known, usable = find_mcp_secrets(settings, secrets), list(chosen)
    for offered in chosen:
        templates = {"headers": offered.server.headers, "env": offered.server.env}
        if offered.server.oauth is not None:
            templates["oauth"] = {"client_secret": offered.server.oauth.client_secret or ""}
        for section, values in templates.items():
            for key, text in values.items():
                for secret in find_references(text):
                    if secret not in known:
                        where = "mcp", offered.alias, section, key
                        report.warnings.append(_at_key(report, f"The secret {secret!a} is not set here", *where))
                        usable = [each for each in usable if each is not offered]
        for argument in (offered.server.command or "", *offered.server.args):
            if offered.owner and (name := find_skipped(argument)) and os.path.exists(folder / argument):
                why = f"The server can't read {argument}, because {name} is no part of the bundle. Install it elsewhere"
                report.warnings.append(_at_key(report, why, "mcp", offered.alias, "args"))
    if chosen:
        report.parts.append(_count(len(chosen), "MCP server"))
    return usable


async def _start_servers(
    bundle: Bundle,
    usable: Sequence[OfferedServer],
    settings: WorkerSettings,
    secrets: Mapping[str, str],
    report: CodeReport,
    *,
    installs: bool,
) -> TriedServers:
    """Start the servers that have a command. One that fails may work elsewhere, so it is a warning; an approval that
    can't be kept as it is written is a problem."""
    found, hosts = find_mcp_secrets(settings, secrets), build_host_options(settings)
    tried = await try_servers(bundle, usable, found, settings, hosts, installs=installs)
    for alias, why in tried.problems:
        key = "requires_approval"
        if why.startswith(f"{key} names "):
            report.problems.append(_at_key(report, why.removeprefix(f"{key} "), "mcp", alias, key))
        else:
            report.warnings.append(_at_key(report, why, "mcp", alias))
    return tried


def _check_policy(
    bundle: Bundle, own: Sequence[ToolSpec], of_servers: Sequence[ToolSpec], config: OperatorConfig, report: CodeReport
) -> None:
    """Find rules for tools, and about parameters, that do not exist. It is a problem if only the bundle decides that; a
    tool with another alias can be the operator's, and servers change."""
    parameters = {
        spec.tool_id: frozenset(spec.params.model_json_schema().get("properties", {})) for spec in (*own, *of_servers)
    }
    known = sorted(BUILTIN_TOOLS.union(parameters))
    owned = {spec.tool_id for spec in own}
    for number, rule in enumerate(bundle.manifest.policy):
        if rule.tool == "*":
            continue
        meant = [tool_id for tool_id in known if rule.is_for(tool_id)]
        alias = rule.tool.removesuffix(".*").rpartition(".")[0] or rule.tool.removesuffix(".*")
        siblings = [tool_id for tool_id in known if tool_id.startswith(f"{alias}.")]
        if not meant and (siblings or not (config.tools or alias.startswith("mcp"))):
            like = get_close_matches(rule.tool, known, n=1)
            hint = f"Perhaps you mean {like[0]}" if like else f"The tools are: {', '.join(siblings or known)}"
            problem = _at_key(report, f"The agent has no tool {rule.tool!a}. {hint}", "policy", number, "tool")
            (report.problems if siblings else report.warnings).append(problem)
        if not meant or not parameters.keys() >= set(meant):
            continue
        for name in sorted(Condition(rule.when).parameters.difference(*(parameters[each] for each in meant))):
            has = ", ".join(sorted(frozenset[str]().union(*(parameters[each] for each in meant)))) or "none"
            why = f"{rule.tool} has no parameter {name!a}. There are: {has}"
            problem = _at_key(report, why, "policy", number, "when")
            (report.problems if owned.issuperset(meant) else report.warnings).append(problem)


def _check_tokens(bundle: Bundle, secrets: Mapping[str, str], report: CodeReport) -> None:
    """Warn of tokens for repositories with knowledge that nobody sets."""
    for space in bundle.manifest.knowledge:
        if space.token and space.token.removeprefix("b:") not in secrets:
            why = f"The secret {space.token!a} is not set here"
            report.warnings.append(_at_key(report, why, "knowledge", "token"))


async def _check_process(
    bundle: Bundle, settings: WorkerSettings, secrets: Mapping[str, str], report: CodeReport, *, installs: bool
) -> Sequence[ToolSpec] | None:
    """Load the tools and the workflow in a process of their own. The tools; None if they can't be loaded here."""
    requirements = bundle.files.get(REQUIREMENTS, b"")
    try:
        check_requirements(requirements)
    except BadRequirements as error:
        report.problems.append(place_problem(error.detail))
        return None
    if (code := try_build_code(bundle, secrets)) is None:
        return ()
    options = build_host_options(settings)
    if requirements.strip() and not installs and not options.environments.has(requirements):
        why = "These libraries are not installed, so tools and workflow were not loaded. Add --install to load them"
        report.warnings.append(Problem(why, REQUIREMENTS))
        return None
    try:
        async with open_bundle_host(code, options) as host:
            description = host.description
    except BadRequirements as error:
        report.problems.append(Problem(error.detail.rstrip("."), REQUIREMENTS))
    except Invalid as error:
        problem = locate_failure(bundle, report.manifest_text, error.detail)
        # An operator may have set the secret where the bundle will run.
        (report.warnings if _UNSET in error.detail else report.problems).append(problem)
    else:
        return _check_description(bundle, description, report)
    return None


def _check_description(bundle: Bundle, description: BundleDescription, report: CodeReport) -> Sequence[ToolSpec] | None:
    specs: Sequence[ToolSpec] | None = None
    taken = set(BUILTIN_TOOLS)
    for tool in description.tools:
        try:
            read_specs(BundleDescription(tools=(tool,)), taken)
        except Invalid as error:
            report.problems.append(locate_failure(bundle, report.manifest_text, error.detail))
        taken.add(tool.tool_id)
    try:
        specs = read_specs(description, BUILTIN_TOOLS)
    except Invalid as error:
        if not report.problems:
            report.problems.append(locate_failure(bundle, report.manifest_text, error.detail))
    try:
        read_operations(description)
    except Invalid as error:
        report.problems.append(Problem(error.detail.rstrip("."), WORKFLOW))
    if description.has_workflow and bundle.manifest.agent.workflow == "dag":
        why = f"The bundle has a {WORKFLOW}, so this key can't be 'dag'. Remove one of them"
        report.problems.append(_at_key(report, why, "react", "workflow"))
    report.parts[:0] = [
        *([_count(len(description.tools), "tool")] if description.tools else []),
        *(["a workflow"] if description.has_workflow else []),
        *([_count(len(description.operations), "operation")] if description.operations else []),
    ]
    return specs


def locate_failure(bundle: Bundle, manifest_text: str, detail: str) -> Problem:
    """Why the code could not be loaded, with the line of the bundle that it is about."""
    text = detail.rstrip(".")
    if raised := _RAISED_AT.search(text):
        paths = [name for name in bundle.files if PurePosixPath(name).name == raised[1]]
        if len(paths) == 1:
            why, line = text[: raised.start()].rstrip("."), int(raised[2])
            if NOT_FOUND in why:
                why = why.replace(NOT_FOUND, advise_import(bundle, paths[0], line) or NOT_FOUND)
            if (absent := _ABSENT.search(why)) and str(PurePosixPath(absent[1])) in bundle.files:
                why = f"{why}. The code does not run in the folder of the bundle: open its file as {_OWN_FILE}"
            return Problem(why, paths[0], line)
    if entry := _ENTRY.match(text):
        if entry[1] == "tools ":
            line = find_line(manifest_text, ("tools", int(entry[2]) - 1))
            return Problem(text[entry.end() :], MANIFEST, line, f"tools {entry[2]}")
        line = _find_element(bundle, entry[1].rstrip("["), int(entry[2]))
        return Problem(text[entry.end() :], DESCRIPTOR, line, f"{entry[1]}{entry[2]}]")
    if tool := _TOOL.match(text) or _TWICE.match(text):
        found = [
            (name, node.lineno)
            for name, content in bundle.files.items()
            if name.endswith(".py") and not name.startswith("skills/")
            for node in ast.walk(parse_if_valid(content))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == tool[2]
        ]
        if len(found) == 1:
            return Problem(text, *found[0])
    if place := _REF.match(text):
        like = get_close_matches(place[2], [name for name in bundle.files if name.endswith(".py")], n=1)
        text = f"{text}. Perhaps you mean {like[0]}" if like else text
        for number, entry in enumerate(bundle.manifest.tools):
            if (entry.alias, entry.ref) == (place[1], place[2]):
                line = find_line(manifest_text, ("tools", number, "ref"))
                return Problem(text[place.start(2) :], MANIFEST, line, f"tools {number + 1}")
        return Problem(text[place.start(2) :], DESCRIPTOR, _find_text(bundle, place[2]))
    if text.startswith(f"{WORKFLOW} ") or text.startswith(f"{WORKFLOW}: "):
        return Problem(text.removeprefix(f"{WORKFLOW}: "), WORKFLOW)
    return place_problem(text)


def _find_element(bundle: Bundle, name: str, index: int) -> int | None:
    """The line of an element of a list that the descriptor assigns."""
    for node in parse_if_valid(bundle.files.get(DESCRIPTOR, b"")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.List(elts=elements)) if target == name:
                return elements[index].lineno if index < len(elements) else node.lineno
            case _:
                pass
    return None


def _find_text(bundle: Bundle, text: str) -> int | None:
    """The first line of the descriptor with this text."""
    nodes = ast.walk(parse_if_valid(bundle.files.get(DESCRIPTOR, b"")))
    return next((node.lineno for node in nodes if isinstance(node, ast.Constant) and node.value == text), None)


def _check_skills(skills: Skills, report: CodeReport) -> None:
    """Warn of refs to files that a skill of the bundle doesn't have."""
    own = {skill.id: skill for skill in skills}
    for skill in skills:
        for path, file in skill.files.items():
            if not file.is_text or not path.endswith(".md") or skill.namespace == "public":
                continue
            for number, line in enumerate(file.decode().splitlines(), 1):
                for match in _SKILL_REF.finditer(line):
                    target, wanted = own.get(match[1]), match[2].rstrip("./")
                    if target is None:
                        why = f"The agent has no skill {match[1]}"
                    elif not any(each == wanted or each.startswith(f"{wanted}/") for each in target.files):
                        why = f"The skill {match[1]} has no file {wanted}"
                    else:
                        continue
                    report.warnings.append(Problem(why, f"skills/{skill.namespace}/{skill.name}/{path}", number))
    if skills:
        report.parts.append(_count(len(skills), "skill"))


async def _check_knowledge(bundle: Bundle, folder: Path, report: CodeReport) -> None:
    """Look at the documents in the bundle's own folder. Workers don't refuse a bundle for them. Repositories are not
    fetched."""
    documents = 0
    for space in bundle.manifest.knowledge:
        if space.repo:
            continue
        tree = FolderTree(folder, space.name, space.roots, TreeLimits())
        try:
            listing = await tree.list_files()
            targets = listing.names | find_folders(listing.names)
            broken: list[str] = []
            for file in listing.files:
                if space.validate_refs and not file.converted_from:
                    text = (await tree.read(file)).decode("utf-8-sig", "replace")
                    broken += find_broken_links(file.origin, text, targets, space.roots)
        except EverturnError as error:
            report.warnings.append(_at_key(report, error.detail, "knowledge"))
            continue
        documents += len(listing.files)
        for found in broken[:MAX_LISTED]:
            file, line, target = found.split(":", 2)
            report.warnings.append(Problem(f"The link {target.strip()} is broken", file, int(line)))
        if len(broken) > MAX_LISTED:
            report.warnings.append(_at_key(report, f"{len(broken) - MAX_LISTED} more links are broken", "knowledge"))
        for skipped in listing.skipped.listed[:MAX_LISTED]:
            report.warnings.append(_at_key(report, f"Skipped {skipped}", "knowledge"))
    if documents:
        report.parts.append(_count(documents, "document"))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

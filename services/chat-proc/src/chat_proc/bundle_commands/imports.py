"""Imports by which a bundle names its own files and does not find them, and what to write in their place.

The process of the tools imports the files as one package, which has the id of the bundle. It also finds the modules
beside bundle.toml by their names. The program of an MCP server finds the modules in its own folder.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.host.environments import REQUIREMENTS, SDK_MODULES
from chat_proc.bundles.host.host_process import BundleCode
from chat_proc.bundles.manifest import Problem

NOT_FOUND: Final = "Name its package in requirements.txt, or correct the name"
"""What the process says of each module that it does not find."""
MAX_FOUND: Final = 20
MAX_NAMES_CHARS: Final = 200
"""Of the imported names in a message."""

Import = ast.Import | ast.ImportFrom
Parts = tuple[str, ...]


def find_wrong_imports(bundle: Bundle) -> list[Problem]:
    """The first MAX_FOUND of them, each with its line."""
    modules, scripts = _Modules(bundle), _find_scripts(bundle)
    problems: list[Problem] = []
    for name, content in bundle.files.items():
        is_script = name in scripts
        # Beside a script are most likely its own modules.
        is_beside = not is_script and "/" in name and any(_split(name)[0] == _split(each)[0] for each in scripts)
        if not name.endswith(".py") or name.startswith("skills/") or is_beside:
            continue
        module = parse_if_valid(content)
        # In `try` are alternatives, of which one may work.
        tried = {inner for each in ast.walk(module) if isinstance(each, ast.Try) for inner in ast.walk(each)}
        for node in (each for each in ast.walk(module) if isinstance(each, Import) and each not in tried):
            if advice := modules.advise_script(name, node) if is_script else modules.advise(name, node):
                problems.append(Problem(f"The import finds no module. {advice}", name, node.lineno))
    return problems[:MAX_FOUND]


def advise_import(bundle: Bundle, name: str, line: int) -> str:
    """What to write in place of the import in this line, which has failed in the process of the tools; empty if it
    names no file of the bundle."""
    modules = _Modules(bundle)
    nodes = [each for each in ast.walk(parse_if_valid(bundle.files[name])) if isinstance(each, Import)]
    found = (modules.advise(name, each, has_failed=True) for each in nodes if each.lineno == line)
    return next(filter(None, found), "")


def parse_if_valid(source: bytes) -> ast.Module:
    """The module; an empty one if its code is not valid, which is a problem of its own."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


class _Modules:
    """What can be imported of a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self._package = BundleCode(bundle.id, bundle.digest, {}).package
        self._has_libraries = bool(bundle.files.get(REQUIREMENTS, b"").strip())
        paths = [PurePosixPath(name).with_suffix("").parts for name in bundle.files if name.endswith(".py")]
        self._own = {path[:length] for path in paths for length in range(1, len(path) + 1)}

    def advise(self, name: str, node: Import, *, has_failed: bool = False) -> str:
        """What to write in place of an import in the process of the tools; empty if it may work."""
        folder, stem = _split(name)
        for module in _list_absolute(node):
            is_known = module[0] in (self._package, *SDK_MODULES) or module[0] in sys.stdlib_module_names
            if is_known or module[:1] in self._own or (self._has_libraries and not has_failed):
                continue
            for target in ((*folder, *module), module[1:]):
                if target in self._own:
                    return _explain(node, folder, stem, target)
        return ""

    def advise_script(self, name: str, node: Import) -> str:
        """What to write in place of an import in the program of a server; empty if it may work."""
        folder, _ = _split(name)
        if isinstance(node, ast.ImportFrom) and node.level:
            above = folder[: len(folder) - node.level + 1]
            target = (*above, *(node.module.split(".") if node.module else ()))
            is_reached = target[: len(folder)] == folder
            return _explain_script(node, target[len(folder) :]) if is_reached else ""
        for module in _list_absolute(node):
            # Another name can be that of a library.
            if module[: 1 + len(folder)] == (self._package, *folder) and module[1:] in self._own:
                return _explain_script(node, module[1 + len(folder) :])
        return ""


def _explain(node: Import, folder: Parts, stem: str, target: Parts) -> str:
    """Relative to the importing file, which works whatever the id of the bundle is."""
    common = 0
    while common < min(len(folder), len(target)) and folder[common] == target[common]:
        common += 1
    if not all(part.isidentifier() for part in (*folder, stem)):
        # Such a file is no part of the package.
        return f"Write {_render(node, '', target)}"
    statement = _render(node, "." * (1 + len(folder) - common), target[common:])
    return f"Files of the bundle are imported with a dot: write {statement}"


def _explain_script(node: Import, target: Parts) -> str:
    return f"The program of a server finds modules in its own folder, without a dot: write {_render(node, '', target)}"


def _render(node: Import, dots: str, target: Parts) -> str:
    names = ", ".join(alias.name if not alias.asname else f"{alias.name} as {alias.asname}" for alias in node.names)
    if isinstance(node, ast.ImportFrom) and (dots or target):
        return f"from {dots}{'.'.join(target)} import {names[:MAX_NAMES_CHARS]}"
    if isinstance(node, ast.ImportFrom):
        return f"import {names[:MAX_NAMES_CHARS]}"
    parent, last = ".".join(target[:-1]), target[-1] if target else ""
    return f"from {dots}{parent} import {last}" if dots or parent else f"import {last}"


def _list_absolute(node: Import) -> list[Parts]:
    """The modules that it names, unless they are relative."""
    if isinstance(node, ast.ImportFrom):
        return [tuple((node.module or "").split("."))] if not node.level else []
    return [tuple(alias.name.split(".")) for alias in node.names]


def _split(name: str) -> tuple[Parts, str]:
    path = PurePosixPath(name)
    return path.parts[:-1], path.stem


def _find_scripts(bundle: Bundle) -> frozenset[str]:
    """The Python files that are the programs of MCP servers."""

    def list_arguments() -> Iterator[str]:
        for server in bundle.manifest.mcp.values():
            yield from (server.command or "", *server.args)

    named = (str(PurePosixPath(each)) for each in list_arguments() if each.endswith(".py"))
    return frozenset(name for name in named if name in bundle.files)

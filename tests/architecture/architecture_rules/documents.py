"""What must be true between files: named functions exist, links lead somewhere, nothing of one machine."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from os.path import normpath
from pathlib import Path, PurePosixPath

from architecture_rules.sources import ROOT, Module, Violation

_TOP = r"(?:\.ci|bench|clients|deploy|docs|libs|migrations|services|tests)"
NAMED_PATH = re.compile(rf"`({_TOP}/[\w./-]+)`")
PATH_IN_PROSE = re.compile(rf"(?<![\w./-])({_TOP}/[\w./-]*\w)")
"""A path with or without backticks, without a full stop after it."""
RELATIVE_PATH = re.compile(rf"(?<![\w./<>:*{{}}-])(?!{_TOP}/)((?:[\w-]+/)+[\w.-]+\.(?:md|py|sql|toml|tsx?))(?![\w/*])")
"""The end of a path with a folder, such as `timeline/view.py`."""
OF_AGENTS = ("files/", "turn_x/")
"""Folders of an agent's workspace, in examples."""
NAMED_FUNCTION = re.compile(r"`([\w./-]+\.py):([\w.]+)`")
MADE_BY_UP = ("deploy/.env", "deploy/everturn.env", "deploy/config", "deploy/secrets")
"""What `make up` and deploy/prepare.py create in an operator's checkout; never committed."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Put together from parts, so that this file passes its own check.
REGISTRIES = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "registry.npm" + "js.org",
    "registry.yarn" + "pkg.com",
    "deb." + "debian.org",
    "archive." + "ubuntu.com",
    "docker" + ".io/",
]
MACHINE_PATHS = {str(ROOT), str(Path.home())} - {"/", "/root"}
"""This checkout and this home: where a path of a machine comes from when it slips in. Root's home is everywhere."""


def check_named_functions(document: str, text: str, find: Callable[[str], Module | None]) -> Iterator[Violation]:
    """Every `path.py:name` or `path.py:Class.method` in a document exists. `find` returns None for an absent file."""
    for number, line in enumerate(text.splitlines(), 1):
        for path, name in NAMED_FUNCTION.findall(line):
            module = find(path)
            if module is None:
                yield Violation(document, number, f"names {path}, which does not exist")
            elif name not in collect_names(module.tree.body):
                yield Violation(document, number, f"names {name}, which {path} does not have")


def check_named_paths(document: str, text: str, exists: Callable[[str], bool]) -> Iterator[Violation]:
    """Every path of the repository that a document names in backticks exists. `exists` gets the path as written."""
    for number, line in enumerate(text.splitlines(), 1):
        for path in NAMED_PATH.findall(line):
            if not path.startswith(MADE_BY_UP) and not exists(path):
                yield Violation(document, number, f"names {path}, which does not exist")


def check_paths_in_source(
    path: str, text: str, exists: Callable[[str], bool], ends_a_path: Callable[[str], bool]
) -> Iterator[Violation]:
    """Every path of the repository, and every end of one, that a docstring or comment of a Python file names exists."""
    if not PATH_IN_PROSE.search(text) and not RELATIVE_PATH.search(text):
        return
    for number, prose in _find_prose(text):
        for line, part in enumerate(prose.splitlines(), number):
            for named in PATH_IN_PROSE.findall(part):
                if not named.startswith(MADE_BY_UP) and not exists(named):
                    yield Violation(path, line, f"names {named}, which does not exist")
            for named in RELATIVE_PATH.findall(part):
                if not named.startswith(OF_AGENTS) and not ends_a_path(named):
                    yield Violation(path, line, f"names {named}, with which no path ends")


def _find_prose(text: str) -> Iterator[tuple[int, str]]:
    """The docstrings, also those of attributes, and the comments of a Python file, with their first lines."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


RECORD_PARTS = ("**Context.**", "**Decision.**", "**Consequences.**", "**Rejected.**")
MAX_RECORD_LINES = 120


def check_record(path: str, text: str) -> Iterator[Violation]:
    """A decision record begins with its number and a title, has the four parts in order, and fits on a few screens."""
    number, lines = PurePosixPath(path).name[:4], text.splitlines()
    if not lines[0].startswith(f"# {number} "):
        yield Violation(path, 1, f"must begin with `# {number} Title`")
    if [part for part in RECORD_PARTS for line in lines if line.startswith(part)] != list(RECORD_PARTS):
        yield Violation(path, 1, "must have each of these parts once: " + ", ".join(RECORD_PARTS))
    if len(lines) > MAX_RECORD_LINES:
        yield Violation(path, len(lines), f"has more than {MAX_RECORD_LINES} lines")


def check_links(document: str, text: str, exists: Callable[[str], bool]) -> Iterator[Violation]:
    """Every link of a Markdown document to a place beside it leads somewhere. `exists` returns whether a
    path of the repository is a file or folder."""
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            place = target.partition("#")[0]
            if place and "://" not in place and not exists(normpath(PurePosixPath(document).parent / place)):
                yield Violation(document, number, f"links to {target}, which does not exist")


def collect_names(body: Iterable[ast.stmt], prefix: str = "") -> set[str]:
    """Functions, classes, methods (`Class.method`) and constants of a module."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            found |= collect_names(node.body, f"{prefix}{node.name}.")
        if isinstance(node, ast.Assign):
            found |= {prefix + target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(prefix + node.target.id)
    return found


def check_no_machine(path: str, text: str) -> Iterator[Violation]:
    """No addresses of package registries and no absolute paths of somebody's machine."""
    for number, line in enumerate(text.splitlines(), 1):
        for registry in REGISTRIES:
            if registry in line:
                yield Violation(path, number, f"address of a package registry: {registry}")
        for place in MACHINE_PATHS:
            if f"{place}/" in line:
                yield Violation(path, number, f"absolute path of a machine: {place}")

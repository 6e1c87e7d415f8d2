"""The size budgets: pure checks on parsed modules. Over budget means: split by noun."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from architecture_rules.sources import Module, Violation

MAX_SOURCE_LINES = 400
MAX_TEST_LINES = 800
MAX_FUNCTION_LINES = 50
MAX_NESTING = 4
MAX_POSITIONAL = 5
MAX_CLASS_LINES = 250
MAX_PUBLIC_METHODS = 15
MAX_FILES = 15
MAX_DEPTH = 3

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def check_file_lines(module: Module, limit: int = MAX_SOURCE_LINES) -> Iterator[Violation]:
    lines = len(module.text.splitlines())
    if lines > limit:
        yield Violation(module.path, lines, f"{lines} lines, at most {limit}")


def check_functions(module: Module) -> Iterator[Violation]:
    for node in module.nodes:
        if not isinstance(node, Function):
            continue
        if (lines := count_lines(node)) > MAX_FUNCTION_LINES:
            yield Violation(module.path, node.lineno, f"{node.name}: {lines} lines, at most {MAX_FUNCTION_LINES}")
        if (depth := measure_nesting(node.body)) > MAX_NESTING:
            yield Violation(module.path, node.lineno, f"{node.name}: nesting {depth}, at most {MAX_NESTING}")
        if (count := count_positional(node)) > MAX_POSITIONAL:
            yield Violation(module.path, node.lineno, f"{node.name}: {count} positional parameters")


def check_classes(module: Module) -> Iterator[Violation]:
    for node in module.nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        if (lines := count_lines(node)) > MAX_CLASS_LINES:
            yield Violation(module.path, node.lineno, f"{node.name}: {lines} lines, at most {MAX_CLASS_LINES}")
        public = [item for item in node.body if isinstance(item, Function) and not item.name.startswith("_")]
        if len(public) > MAX_PUBLIC_METHODS:
            yield Violation(module.path, node.lineno, f"{node.name}: {len(public)} public methods")


def check_folders(modules: Iterable[Module]) -> Iterator[Violation]:
    """`__init__.py` doesn't count: a package must have it."""
    found = Counter(module.path.rpartition("/")[0] for module in modules if module.name != "__init__")
    for folder, count in sorted(found.items()):
        if count > MAX_FILES:
            yield Violation(folder, 0, f"{count} files, at most {MAX_FILES}")


def check_depth(module: Module) -> Iterator[Violation]:
    depth = len(module.package_path) - 1
    if depth > MAX_DEPTH:
        yield Violation(module.path, 1, f"depth {depth} below its package, at most {MAX_DEPTH}")


def count_lines(node: Function | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def count_positional(node: Function) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def measure_nesting(body: Sequence[ast.stmt]) -> int:
    """How many blocks stand inside each other; `elif` is as deep as its `if`."""
    return max((_measure_statement(statement) for statement in body), default=0)


def _measure_statement(statement: ast.stmt) -> int:
    if isinstance(statement, ast.If):
        is_elif = len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If)
        otherwise = measure_nesting(statement.orelse) - (1 if is_elif else 0)
        return 1 + max(measure_nesting(statement.body), otherwise)
    if isinstance(statement, BLOCKS):
        return 1 + max((measure_nesting(body) for body in _bodies(statement)), default=0)
    return 0


def _bodies(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for holder in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield holder.body

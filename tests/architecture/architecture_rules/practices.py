"""What source code must not do: pure checks on parsed modules."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping

from architecture_rules.sources import ROOT, Module, Violation

EDGES: Mapping[str, frozenset[str]] = {
    "HTTP handler": frozenset(
        {
            "services/ingress/src/ingress/admission/edge.py:_serve",
            "services/ingress/src/ingress/sockets/connection.py:_try",
        }
    ),
    "loop of a process": frozenset({"libs/common/src/everturn/core/loops.py:guarded"}),
    "tool call": frozenset(
        {
            "libs/sdk/src/everturn_sdk/channels.py:_call",
            "libs/sdk/src/everturn_sdk/host.py:_begin",
            "libs/sdk/src/everturn_sdk/host.py:_end",
            "libs/sdk/src/everturn_sdk/host.py:_invoke",
            "libs/sdk/src/everturn_sdk/host.py:_run",
            "libs/sdk/src/everturn_sdk/workflows.py:step",
            "services/chat-proc/src/chat_proc/agent/tool_calls.py:_bounded",
            "services/chat-proc/src/chat_proc/sandbox/supervised.py:_answer",
        }
    ),
    "sandbox run": frozenset(
        {
            "services/chat-proc/src/chat_proc/sandbox/launching.py:run",
            "services/executor/src/executor/program.py:execute",
        }
    ),
}
"""The four edges at which any exception may end, because they turn it into an answer, and the functions that are one.
Every loop of a process uses `guarded`; a tool is called by the agent, by a program and by the host of its bundle, which
also loads it; a run has an end on our side and one inside the sandbox."""

EDGE_FUNCTIONS = frozenset[str]().union(*EDGES.values())

PROGRAM_RUNNERS = frozenset({"services/executor/src/executor/program.py"})
"""The module that runs the generated program, inside the sandbox: the one use of compile and eval."""

VAGUE_NAMES = re.compile(r"(?:^|_)(?:utils?|helpers?|managers?|misc|common|stuff|v\d+|new|old)(?:_|$)", re.IGNORECASE)
UNFINISHED = re.compile(r"#.*\b(TODO|FIXME|XXX|HACK)\b(?:\((?P<owner>[^)]+)\))?")
POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+")
REF_PREFIXES = ("ar:", "fi:", "tc:", "so:", "su:", "ws:")
REF_MODULE = "libs/common/src/everturn/core/refs.py"
UNSAFE_MODULES = frozenset({"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle"})
UNSAFE_BUILTINS = frozenset({"eval", "exec", "compile", "__import__"})
UNSAFE_ATTRIBUTES = frozenset({("yaml", "load"), ("yaml", "unsafe_load"), ("builtins", "eval"), ("builtins", "exec")})
EXECUTION_FORMATS = frozenset(
    f"everturn.execution.{name}" for name in ("framing", "messages", "privileges", "records", "streams", "task_orders")
)

DRIVER_NAMES = re.compile(r"(?:postgres|redis|s3|filesystem)(?:_|$)")
"""How modules that talk to a server or to a disk are called, in the folder of their capability."""

METRIC_CLASSES = frozenset({"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"})
"""Of the client library of Prometheus."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_docstring(module: Module) -> Iterator[Violation]:
    """Every module says what it owns; an empty `__init__` owns nothing."""
    if module.tree.body and ast.get_docstring(module.tree) is None:
        yield Violation(module.path, 1, "no module docstring")


def check_name(module: Module) -> Iterator[Violation]:
    if VAGUE_NAMES.search(module.name.strip("_")):
        yield Violation(module.path, 1, "the name says nothing about its content")


def check_broad_except(module: Module, edges: frozenset[str] = EDGE_FUNCTIONS) -> Iterator[Violation]:
    """A handler that ends with a bare `raise` is no end of the exception: it cleans up and lets it go on."""
    for function, node in _walk_with_function(module.tree, "<module>"):
        if not isinstance(node, ast.ExceptHandler) or not _is_broad(node.type) or _raises_again(node):
            continue
        if f"{module.path}:{function}" not in edges:
            yield Violation(module.path, node.lineno, f"{function} catches everything, and is none of the four edges")


def check_silent_except(module: Module) -> Iterator[Violation]:
    """A caught exception is logged, counted or answered; if it can be ignored, use `suppress` with a comment."""
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and all(_does_nothing(each) for each in node.body):
            yield Violation(module.path, node.lineno, "an exception is caught and nothing is done about it")


def check_metrics(module: Module) -> Iterator[Violation]:
    """Metrics are defined in `metrics.py`, of which `test_metric_page.py` sees every one with its labels."""
    if module.name not in ("metrics", "metric_page") and defines_metrics(module):
        yield Violation(module.path, 1, "a metric is defined outside of metrics.py")


def defines_metrics(module: Module) -> bool:
    """Whether it takes a kind of metric from the client library of Prometheus."""
    return any(_is_metric_class(node) for node in module.nodes)


def check_unfinished(module: Module) -> Iterator[Violation]:
    """A TODO names the document that owns it: `TODO(docs/decisions/0007-sandbox.md)`."""
    for number, line in enumerate(module.text.splitlines(), 1):
        found = UNFINISHED.search(line)
        if found and not (found["owner"] and (ROOT / found["owner"]).is_file()):
            yield Violation(module.path, number, f"{found[1]} without an owner document")


def check_settings(module: Module) -> Iterator[Violation]:
    """The environment is read in settings.py and handed on as values; setting it for a library is no reading."""
    if module.name == "settings":
        return
    written = set(_written_environments(module))
    for node in module.nodes:
        read = _is_environment(node) and node not in written
        imported = isinstance(node, ast.ImportFrom) and node.module == "os" and _imports(node, {"environ", "getenv"})
        declared = isinstance(node, ast.ImportFrom) and node.module == "pydantic_settings"
        if read or imported or declared:
            yield Violation(module.path, node.lineno, "settings are read outside of settings.py")


def check_refs(module: Module) -> Iterator[Violation]:
    """Refs are put together in one place, where they are also parsed and escaped."""
    if module.path == REF_MODULE:
        return
    for node in module.nodes:
        match node:
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if text.startswith(REF_PREFIXES):
                yield Violation(module.path, node.lineno, "a ref is built outside of core/refs.py")
            case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Add()) if text in REF_PREFIXES:
                yield Violation(module.path, node.lineno, "a ref is built outside of core/refs.py")
            case _:
                pass


def check_regular_expressions(module: Module) -> Iterator[Violation]:
    """Python before 3.11.4, which Debian 12 ships, matches too much with a possessive repeat of a group.

    The same is said correctly by an atomic group: `(?>(?:...)*)` in place of `(?:...)*+`.
    """
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if "(?:" in text and POSSESSIVE_GROUP.search(text):
                yield Violation(
                    module.path, node.lineno, "a possessive repeat of a group is wrong before Python 3.11.4"
                )


def check_no_code_from_data(module: Module, runners: frozenset[str] = PROGRAM_RUNNERS) -> Iterator[Violation]:
    """Nothing that arrives on a wire becomes code or an object of a class it names."""
    for node in module.nodes:
        found = _find_unsafe(node)
        if found is not None and not (found in UNSAFE_BUILTINS and module.path in runners):
            yield Violation(module.path, getattr(node, "lineno", 1), f"{found} turns data into code")


def check_executor_imports(module: Module) -> Iterator[Violation]:
    """The executor, and the modules of `everturn.execution` that it uses, need nothing but the standard library."""
    if module.package_path[:1] == ("executor",):
        own = ("executor",)
    elif ".".join(module.package_path).removesuffix(".py") in EXECUTION_FORMATS:
        own = ()
    else:
        return
    for node in module.nodes:
        for name in _imported_modules(node):
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in own and name not in EXECUTION_FORMATS:
                yield Violation(module.path, getattr(node, "lineno", 1), f"imports {name}")


def check_sdk_imports(module: Module) -> Iterator[Violation]:
    """The SDK of authors needs pydantic and nothing else, least of all the platform; the parent of its processes runs
    without libraries."""
    name = ".".join(module.package_path).removesuffix(".py")
    if module.package_path[:1] == ("everturn_sdk",):
        allowed = {"everturn_sdk", "pydantic", "pydantic_core"}
    elif name == "chat_proc.bundles.host.watchdog":
        allowed = set[str]()
    else:
        return
    for node in module.nodes:
        for imported in _imported_modules(node):
            top = imported.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in allowed:
                yield Violation(module.path, getattr(node, "lineno", 1), f"imports {imported}")


def check_driver_imports(module: Module) -> Iterator[Violation]:
    """Drivers are chosen in a bootstrap; everything else of a product takes ports through its constructor."""
    name = ".".join(module.package_path).removesuffix(".py")
    product = module.path.startswith(("libs/", "services/")) and "everturn_testing" not in name
    if not product or _is_driver(name) or module.name in {"bootstrap", "model_choice", "opening"}:
        return
    for node in module.nodes:
        for imported in _imported_modules(node):
            if _is_driver(imported) or imported.startswith("everturn_testing"):
                yield Violation(module.path, getattr(node, "lineno", 1), f"imports the driver {imported}")


def _is_driver(module: str) -> bool:
    root, *rest = module.split(".")
    return root == "everturn" and any(DRIVER_NAMES.match(part) for part in rest)


def _imported_modules(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module="everturn.execution", names=names):
            return [f"everturn.execution.{alias.name}" for alias in names]
        case ast.ImportFrom(module=str(name)):
            return [name]
        case _:
            return []


def _find_unsafe(node: ast.AST) -> str | None:
    match node:
        case ast.Import() | ast.ImportFrom():
            names = [name for name in _imported_modules(node) if name.partition(".")[0] in UNSAFE_MODULES]
            return names[0] if names else None
        case ast.Call(func=ast.Name(id=name)) if name in UNSAFE_BUILTINS:
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in UNSAFE_ATTRIBUTES:
            return f"{owner}.{name}"
        case _:
            return None


def _is_environment(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv"):
            return True
        case _:
            return False


def _written_environments(module: Module) -> Iterator[ast.AST]:
    """`os.environ` in `os.environ[name] = value` and in `os.environ.update(...)`, `.pop(...)` and `.clear()`."""
    for node in module.nodes:
        match node:
            case ast.Subscript(value=environment, ctx=ast.Store()):
                yield environment
            case ast.Call(func=ast.Attribute(value=environment, attr="clear" | "update" | "pop")):
                yield environment
            case _:
                pass


def _is_metric_class(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module=str(name)) if name.partition(".")[0] == "prometheus_client":
            return _imports(node, {*METRIC_CLASSES})
        case ast.Attribute(value=ast.Name(id="prometheus_client"), attr=name):
            return name in METRIC_CLASSES
        case _:
            return False


def _does_nothing(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case _:
            return False


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _is_broad(caught: ast.expr | None) -> bool:
    match caught:
        case None:
            return True
        case ast.Tuple(elts=parts):
            return any(_is_broad(part) for part in parts)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("Exception", "BaseException")
        case _:
            return False


def _walk_with_function(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the name of the innermost function around it."""
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, Function) else function
        yield inner, child
        yield from _walk_with_function(child, inner)


def _functions(module: Module) -> Iterator[Function]:
    return (node for node in module.nodes if isinstance(node, Function))


def _imports(node: ast.ImportFrom, names: set[str]) -> bool:
    return any(alias.name in names for alias in node.names)

"""The rules of practice hold for every module, and the checks find what they should."""

import ast
import re
from collections.abc import Callable, Iterator

import pytest
from architecture_rules.practices import (
    EDGE_FUNCTIONS,
    EDGES,
    PROGRAM_RUNNERS,
    check_broad_except,
    check_docstring,
    check_driver_imports,
    check_executor_imports,
    check_metrics,
    check_name,
    check_no_code_from_data,
    check_refs,
    check_regular_expressions,
    check_sdk_imports,
    check_settings,
    check_silent_except,
    check_unfinished,
)
from architecture_rules.prose import check_log_events, check_words
from architecture_rules.sources import ROOT, Module, Violation, load_modules, load_repository_texts, render

Check = Callable[[Module], Iterator[Violation]]
CHECKS: list[Check] = [
    check_broad_except,
    check_docstring,
    check_driver_imports,
    check_executor_imports,
    check_sdk_imports,
    check_log_events,
    check_metrics,
    check_name,
    check_no_code_from_data,
    check_refs,
    check_regular_expressions,
    check_settings,
    check_silent_except,
    check_unfinished,
]


@pytest.mark.parametrize("check", CHECKS)
def test_every_module_keeps_the_rules(check: Check):
    violations = [found for module in load_modules() for found in check(module)]

    assert not violations, render(violations)


def test_every_edge_that_may_catch_everything_exists():
    modules = {module.path: module for module in load_modules()}

    for edge in EDGE_FUNCTIONS:
        path, _, function = edge.partition(":")
        assert path in modules, edge
        assert f"def {function}(" in modules[path].text, edge


def test_fastapi_runs_no_dependency_and_no_endpoint_in_a_thread():
    """It does so with each one that is not async, for half a millisecond."""
    trees = [ast.parse(module.text) for module in load_modules() if module.path.startswith("services/ingress/")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = {call.args[0].id for call in calls if _is_depends(call) and isinstance(call.args[0], ast.Name)}
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]

    assert "load_caller" in named
    assert not [each.name for each in functions if each.name in named or _is_endpoint(each)]


def _is_depends(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "Depends"


def _is_endpoint(function: ast.FunctionDef) -> bool:
    return any("router." in ast.unparse(decorator) for decorator in function.decorator_list)


def test_there_are_four_edges():
    assert len(EDGES) == 4


def test_every_program_runner_exists_and_belongs_to_the_executor():
    assert not [path for path in PROGRAM_RUNNERS if not (ROOT / path).is_file() or "/executor/" not in path]


def count(check: Check, text: str, path: str = "services/x/src/x/m.py") -> int:
    return len(list(check(Module(path, text))))


@pytest.mark.parametrize(("text", "found"), [("", 0), ('"""Owns x."""', 0), ("x = 1", 1)])
def test_a_module_with_content_says_what_it_owns(text: str, found: int):
    assert count(check_docstring, text) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [("turns", 0), ("newline", 0), ("util", 1), ("string_utils", 1), ("run_v2", 1), ("new_loop", 1), ("manager", 1)],
)
def test_a_name_says_something(name: str, found: int):
    assert count(check_name, "", f"services/x/src/x/{name}.py") == found


@pytest.mark.parametrize(
    ("caught", "found"),
    [
        ("except ValueError:", 0),
        ("except (ValueError, OSError):", 0),
        ("except:", 1),
        ("except Exception:", 1),
        ("except BaseException as error:", 1),
        ("except builtins.Exception:", 1),
        ("except (OSError, Exception):", 1),
    ],
)
def test_only_an_edge_catches_everything(caught: str, found: int):
    text = f"def f():\n  try:\n    g()\n  {caught}\n    h()"
    edge = frozenset({"services/x/src/x/m.py:f"})

    assert count(check_broad_except, text) == found
    assert list(check_broad_except(Module("services/x/src/x/m.py", text), edge)) == []


def test_cleaning_up_and_raising_again_is_not_catching():
    assert count(check_broad_except, "def f():\n  try:\n    g()\n  except BaseException:\n    h()\n    raise") == 0
    assert count(check_broad_except, "def f():\n  try:\n    g()\n  except Exception:\n    raise X from None") == 1


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        ("pass", 1),
        ("...", 1),
        ("'Nobody minds.'", 1),
        ("h()", 0),
        ("return None", 0),
        ("raise", 0),
    ],
)
def test_nothing_is_caught_and_then_left_alone(handler: str, found: int):
    assert count(check_silent_except, f"def f():\n  try:\n    g()\n  except OSError:\n    {handler}") == found
    assert count(check_silent_except, "with suppress(OSError):\n  g()") == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from prometheus_client import Counter", 1),
        ("from prometheus_client.metrics import Gauge", 1),
        ("import prometheus_client\nx = prometheus_client.Histogram('a', 'b')", 1),
        ("from prometheus_client import REGISTRY, generate_latest", 0),
        ("from collections import Counter", 0),
    ],
)
def test_metrics_are_defined_where_their_labels_are_looked_at(text: str, found: int):
    assert count(check_metrics, text) == found
    assert count(check_metrics, text, "services/x/src/x/metrics.py") == 0


def test_an_edge_is_one_function_and_not_its_whole_file():
    text = "def g():\n  try:\n    h()\n  except Exception:\n    pass"
    edge = frozenset({"services/x/src/x/m.py:f"})

    assert len(list(check_broad_except(Module("services/x/src/x/m.py", text), edge))) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1  # why", 0),
        ("x = 1  # TODO", 1),
        ("# FIXME(nobody.md): later", 1),
        ("# TODO(pyproject.toml): pin", 0),
        ('x = "TODO"', 0),
    ],
)
def test_a_todo_has_an_owner_document(text: str, found: int):
    assert count(check_unfinished, text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import os\nos.path.join('a')", 0),
        ("import os\nos.environ['A']", 1),
        ("import os\nos.getenv('A')", 1),
        ("import os\nos.environ['A'] = 'x'", 0),
        ("import os\nos.environ.update(A='x')", 0),
        ("import os\nos.environ.clear()", 0),
        ("from os import environ", 1),
        ("from pydantic_settings import BaseSettings", 1),
    ],
)
def test_settings_are_read_in_settings_only(text: str, found: int):
    assert count(check_settings, text) == found
    assert count(check_settings, text, "services/x/src/x/settings.py") == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('x = f"fi:{turn}.files/{name}"', 1),
        ('x = "so:" + sid', 1),
        ('x = f"file: {name}"', 0),
        ('x = "fi:turn_1.files/a"', 0),
        ('x = f"{prefix}:{name}"', 0),
    ],
)
def test_refs_are_built_in_their_module_only(text: str, found: int):
    assert count(check_refs, text) == found
    assert count(check_refs, text, "libs/common/src/everturn/core/refs.py") == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(?:ab|c)*+", 1),
        ("(?:ab){1,3}+", 1),
        ("(?>(?:ab|c)*)", 0),
        ("(?:ab)+", 0),
        ("[ab]*+(?:c)", 0),
        ("(?:ab\\\\)*+", 0),
    ],
)
def test_no_expression_repeats_a_group_possessively(text: str, found: int):
    assert count(check_regular_expressions, f"x = '{text}'") == found
    assert count(check_regular_expressions, f"x = b'{text}'") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import json", 0),
        ("import pickle", 1),
        ("from marshal import loads", 1),
        ("eval(x)", 1),
        ("exec(x)", 1),
        ("compile(x, 'f', 'exec')", 1),
        ("re.compile(x)", 0),
        ("yaml.load(x)", 1),
        ("yaml.safe_load(x)", 0),
        ("__import__(name)", 1),
    ],
)
def test_data_never_becomes_code(text: str, found: int):
    assert count(check_no_code_from_data, text) == found


def test_a_program_runner_may_run_programs_but_not_unpickle():
    path = "services/executor/src/executor/m.py"
    found = check_no_code_from_data(Module(path, "exec(x)\nimport pickle"), frozenset({path}))

    assert [violation.message for violation in found] == ["pickle turns data into code"]


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("services/ingress/src/ingress/chat/service.py", "from everturn.turns.postgres_inbox import PostgresInbox", 1),
        ("services/ingress/src/ingress/chat/service.py", "from everturn.redis.calls import build_client", 1),
        ("services/ingress/src/ingress/chat/service.py", "import everturn_testing.turns", 1),
        ("libs/common/src/everturn/turns/inbox.py", "from everturn.turns.postgres_rows import read_turn", 1),
        ("services/ingress/src/ingress/chat/service.py", "from everturn.turns.inbox import Inbox", 0),
        ("services/ingress/src/ingress/bootstrap.py", "from everturn.files.s3 import S3Objects", 0),
        ("libs/common/src/everturn/turns/postgres_inbox.py", "from everturn.postgres.pool import Database", 0),
    ],
)
def test_only_bootstraps_choose_drivers(path: str, text: str, found: int):
    assert count(check_driver_imports, text, path) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import json, executor.rpc", 0),
        ("from everturn.execution import messages", 0),
        ("from everturn.execution.framing import read", 0),
        ("import numpy", 1),
        ("from everturn.core import ids", 1),
        ("from everturn.events import model", 1),
    ],
)
def test_the_executor_imports_the_standard_library_and_its_wire_format(text: str, found: int):
    assert count(check_executor_imports, text, "services/executor/src/executor/m.py") == found


def test_the_wire_format_of_the_executor_needs_the_standard_library_only():
    assert count(check_executor_imports, "import pydantic", "libs/common/src/everturn/execution/messages.py") == 1
    assert count(check_executor_imports, "import pydantic", "libs/common/src/everturn/events/model.py") == 0


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("libs/sdk/src/everturn_sdk/host.py", "import asyncio, pydantic\nfrom everturn_sdk.tools import tool", 0),
        ("libs/sdk/src/everturn_sdk/tools.py", "from everturn.core import errors", 1),
        ("libs/sdk/src/everturn_sdk/tools.py", "import chat_proc", 1),
        ("libs/sdk/src/everturn_sdk/tools.py", "import httpx", 1),
        ("services/chat-proc/src/chat_proc/bundles/host/watchdog.py", "import pydantic", 1),
        ("services/chat-proc/src/chat_proc/bundles/host/host.py", "import pydantic", 0),
    ],
)
def test_the_sdk_imports_nothing_of_the_platform(path: str, text: str, found: int):
    assert count(check_sdk_imports, text, path) == found


def test_the_development_server_of_the_web_client_forwards_what_it_calls():
    web = ROOT / "clients/web"
    (listed,) = re.findall(r"const api = \[(.*)\];", (web / "vite.config.ts").read_text())
    forwarded = set(re.findall(r'"([^"]+)"', listed))
    callers = [
        path for path in (web / "src").rglob("*.ts*") if ".test." not in path.name and "testing" not in path.parts
    ]
    called = {path for file in callers for path in re.findall(r"""[`"](/[a-z][a-z/-]*)[`"$]""", file.read_text())}

    assert {"/collections", "/embed/session"} <= called
    assert {path for path in called if path.rstrip("/") not in forwarded} == set()


def test_no_text_has_a_banned_word():
    suffixes = (".py", ".md", ".ts", ".tsx", ".sql", ".yml", ".yaml", ".toml", ".css", ".html", ".sh")
    texts = ((path, text) for path, text in load_repository_texts() if path.endswith(suffixes))

    violations = [found for path, text in texts for found in check_words(path, text)]

    assert not violations, render(violations)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The client is notified.", 0),
        ("The client is " + "to" + "ld.", 1),
        ("def test_it_is_" + "to" + "ld():", 1),
        ("retold and untold scenarios", 0),
        ("Let" + "s go on " + "an" + "ew", 1),
    ],
)
def test_a_banned_word_is_found_alone_and_in_names(text: str, found: int):
    assert len(list(check_words("docs/x.md", text))) == found


def test_a_frozen_column_may_have_a_banned_name():
    column = "SET " + "to" + "ld = true"
    assert not list(check_words("migrations/sql/grants.sql", column))
    assert len(list(check_words("migrations/sql/functions/x.sql", column))) == 1
    assert len(list(check_words("migrations/sql/grants.sql", "an" + "ew"))) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('_log.info("Started a turn", turn=1)', 0),
        ('_log.info("turn_started", turn=1)', 1),
        ('_log.warning("Could not start.")', 1),
        ("_log.warning(event)", 0),
        ('other.info("turn_started")', 0),
    ],
)
def test_a_log_event_is_a_sentence(text: str, found: int):
    assert count(check_log_events, text) == found

"""Documents, tests and the repository agree with the code, and the checks find what they should."""

import ast
import re
from collections.abc import Iterator

import pytest
from architecture_rules.documents import (
    check_links,
    check_named_functions,
    check_named_paths,
    check_no_machine,
    check_paths_in_source,
    check_record,
    collect_names,
)
from architecture_rules.sources import ROOT, SHIPPED_SKILLS, Module, load_repository_texts, render

from chat_proc.tools.offered import BUILTIN_TOOLS

RETRY_NAME = re.compile(
    r"^_?([A-Z]+_)*(TRIES|RETRY|RETRIES|ATTEMPTS|CLOSINGS|BACKOFF|FIRST_PAUSE|AGAIN_S|REREADS|MAX_READS|MAX_DEATHS|OFFLINE_MS)"
    r"(_[A-Z]+)*$"
)
"""Constants that limit retries."""
SQL_FUNCTION = re.compile(r"^CREATE OR REPLACE FUNCTION (\w+)(.*?)(?=^CREATE |\Z)", re.MULTILINE | re.DOTALL)
SQL_BACKOFF = re.compile(r"\* 2 \^ ")
SCRIPT_CONSTANT = re.compile(r"^(?:export )?const ([A-Z][A-Z_]*)\b", re.MULTILINE)


def find_module(path: str) -> Module | None:
    file = ROOT / path
    return Module(path, file.read_text()) if file.is_file() else None


def test_every_log_line_that_the_runbook_quotes_exists():
    quoted = re.findall(r'"([A-Z][^"]{8,})"', (ROOT / "docs/operate.md").read_text())
    sources = "".join(path.read_text() for top in ("libs", "services") for path in (ROOT / top).rglob("src/**/*.py"))

    assert [line for line in quoted if f'"{line}' not in sources] == []


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "docs/subsystems/retries.md"])
def test_every_function_that_a_document_names_exists(document: str):
    violations = list(check_named_functions(document, (ROOT / document).read_text(), find_module))

    assert not violations, render(violations)


def find_retry_limits(path: str, text: str) -> Iterator[str]:
    """Constants that limit retries, and SQL functions with growing pauses, as the page names them."""
    if path.endswith(".py") and path.startswith(("clients/", "deploy/", "libs/common/", "services/")):
        yield from (f"`{path}:{name}`" for name in collect_names(ast.parse(text).body) if RETRY_NAME.search(name))
    elif path.endswith((".ts", ".tsx")) and path.startswith("clients/web/src/") and ".test." not in path:
        yield from (f"`{path}:{name}`" for name in SCRIPT_CONSTANT.findall(text) if RETRY_NAME.search(name))
    elif path.endswith(".sql") and path.startswith("migrations/sql/functions/"):
        yield from (f"`{name}` in `{path}`" for name, body in SQL_FUNCTION.findall(text) if SQL_BACKOFF.search(body))


def test_the_page_of_retries_names_every_limit_of_retries():
    page = (ROOT / "docs/subsystems/retries.md").read_text()

    missing = [
        limit for path, text in load_repository_texts() for limit in find_retry_limits(path, text) if limit not in page
    ]

    assert not missing, f"docs/subsystems/retries.md does not name {missing}"


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("services/a/src/a/b.py", "AGAIN_S = 2.0\nMAX_READS: Final = 3\nREADS = {}\n", ["AGAIN_S", "MAX_READS"]),
        (
            "clients/web/src/a.ts",
            "const RETRY_MS = 1;\nexport const OFFLINE_MS = 2;\nconst SHOWN_MS = 3;\n",
            ["RETRY_MS", "OFFLINE_MS"],
        ),
    ],
)
def test_limits_of_retries_are_found_by_their_names(path: str, text: str, found: list[str]):
    assert sorted(find_retry_limits(path, text)) == sorted(f"`{path}:{name}`" for name in found)


def test_sql_functions_with_growing_pauses_are_found():
    text = "CREATE OR REPLACE FUNCTION one() AS $$ SELECT 5 * 2 ^ n $$;\nCREATE OR REPLACE FUNCTION two() AS $$ $$;\n"

    found = list(find_retry_limits("migrations/sql/functions/a.sql", text))

    assert found == ["`one` in `migrations/sql/functions/a.sql`"]


def test_every_path_that_a_document_names_exists():
    texts = ((path, text) for path, text in load_repository_texts() if path.endswith(".md"))

    violations = [
        found for path, text in texts for found in check_named_paths(path, text, lambda place: (ROOT / place).exists())
    ]

    assert not violations, render(violations)


def test_every_path_that_a_docstring_or_comment_names_exists():
    texts = dict(load_repository_texts())
    made = "deploy/config/everturn.toml"  # by deploy/prepare.py
    ends = {path[at:] for path in (*texts, made) for at in (0, *(i + 1 for i, char in enumerate(path) if char == "/"))}

    violations = [
        found
        for path, text in texts.items()
        if path.endswith(".py")
        for found in check_paths_in_source(path, text, lambda place: (ROOT / place).exists(), ends.__contains__)
    ]

    assert not violations, render(violations)


def test_every_link_of_a_document_leads_somewhere():
    texts = (
        (path, text)
        for path, text in load_repository_texts()
        if path.endswith(".md") and SHIPPED_SKILLS not in (ROOT / path).parents
    )

    violations = [
        found for path, text in texts for found in check_links(path, text, lambda place: (ROOT / place).exists())
    ]

    assert not violations, render(violations)


def test_every_decision_record_has_the_template():
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))

    violations = [found for file in records for found in check_record(file.name, file.read_text())]

    assert records and not violations, render(violations)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# 0007 Title\n**Context.** a\n**Decision.** b\n**Consequences.** c\n**Rejected.** d", 0),
        ("# Title\n**Context.** a\n**Decision.** b\n**Consequences.** c\n**Rejected.** d", 1),
        ("# 0007 Title\n**Context.** a\n**Decision.** b", 1),
        ("# 0007 Title\n**Context.** a\n**Decision.** b\n**Consequences.** c\n**Rejected.** d" + "\n" * 120, 1),
    ],
)
def test_a_decision_record_has_the_template(text: str, found: int):
    assert len(list(check_record("0007-title.md", text))) == found


def test_nothing_of_one_machine_is_committed():
    violations = [found for path, text in load_repository_texts() for found in check_no_machine(path, text)]

    assert not violations, render(violations)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The top is `a/b.py:run`.", 0),
        ("`a/b.py:Loop.step` and `a/b.py:LIMIT` too.", 0),
        ("`a/b.py:gone`", 1),
        ("`a/b.py:Loop.gone`", 1),
        ("`a/absent.py:run`", 1),
        ("a/b.py:gone without backticks is prose", 0),
    ],
)
def test_a_named_function_exists(text: str, found: int):
    module = Module("a/b.py", "LIMIT: int = 3\ndef run(): ...\nclass Loop:\n  async def step(self): ...")
    modules = {"a/b.py": module}

    assert len(list(check_named_functions("D.md", text, modules.get))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`docs/there.md` and `docs/there.md:run`", 0),
        ("`docs/gone.md`", 1),
        ("`services/<service>/settings.py` and docs/gone.md are no paths", 0),
        ("`elsewhere/gone.md` is not of this repository", 0),
    ],
)
def test_a_named_path_exists(text: str, found: int):
    assert len(list(check_named_paths("D.md", text, {"docs/there.md"}.__contains__))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""As docs/there.md says."""\n# And `docs/there.md`.', 0),
        ('"""As docs/gone.md says."""', 1),
        ('LIMIT = 3\n"""From docs/gone.md."""', 1),
        ("LIMIT = 3  # see docs/gone.md", 1),
        ('PATH = "docs/gone.md"', 0),
        ('"""As `guides/there.md` and https://a.test/b/gone.md say."""', 0),
        ('"""As `guides/gone.md` says."""', 1),
        ('"""As in `files/gone.md`, which an agent wrote."""', 0),
    ],
)
def test_a_path_named_in_a_docstring_or_comment_exists(text: str, found: int):
    exists, ends_a_path = {"docs/there.md"}.__contains__, {"guides/there.md"}.__contains__

    assert len(list(check_paths_in_source("a.py", text, exists, ends_a_path))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[here](there.md) and [up](../README.md#top)", 0),
        ("[a page](https://example.org/gone.md), [below](#below)", 0),
        ("[folder](how-to/)", 0),
        ("[gone](gone.md)", 1),
        ("[one](there.md) [gone](../there.md)", 1),
        ("![picture](images/gone.png)", 1),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, found: int):
    places = {"docs/there.md", "README.md", "docs/how-to"}

    assert len(list(check_links("docs/page.md", text, places.__contains__))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://example.org/x", 0),
        ("https://py" + "pi.org/simple", 1),
        ("https://files.python" + "hosted.org/x", 1),
        ("/usr/bin/python", 0),
        ("/home/jane/x", 0),
        (f"{ROOT}/x", 1),
        ("~/.config", 0),
    ],
)
def test_addresses_and_paths_of_a_machine_are_found(text: str, found: int):
    assert len(list(check_no_machine("a.md", text))) == found


def test_authors_find_every_tool_of_the_platform() -> None:
    page = (ROOT / "docs" / "how-to" / "write-tools-of-a-bundle.md").read_text()

    assert [tool_id for tool_id in sorted(BUILTIN_TOOLS) if f"`{tool_id}`" not in page] == []

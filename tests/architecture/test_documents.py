"""Documents, tests and the repository agree with the code, and the checks find what they should."""

import ast
import re

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
from architecture_rules.sources import ROOT, Module, load_repository_texts, render

RETRY_NAME = re.compile(r"^_?([A-Z]+_)*(TRIES|RETRY|RETRIES|ATTEMPTS|CLOSINGS|BACKOFF|FIRST_PAUSE)(_[A-Z]+)*$")
"""Constants that limit retries."""


def find_module(path: str) -> Module | None:
    file = ROOT / path
    return Module(path, file.read_text()) if file.is_file() else None


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "docs/subsystems/retries.md"])
def test_every_function_that_a_document_names_exists(document: str):
    violations = list(check_named_functions(document, (ROOT / document).read_text(), find_module))

    assert not violations, render(violations)


def test_the_page_of_retries_names_every_limit_of_retries():
    page = (ROOT / "docs/subsystems/retries.md").read_text()

    missing = [
        f"{path}:{name}"
        for path, text in load_repository_texts()
        if path.endswith(".py") and path.startswith(("clients/", "deploy/", "libs/common/", "services/"))
        for name in collect_names(ast.parse(text).body)
        if RETRY_NAME.search(name) and f"`{path}:{name}`" not in page
    ]

    assert not missing, f"docs/subsystems/retries.md does not name {missing}"


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
    texts = ((path, text) for path, text in load_repository_texts() if path.endswith(".md"))

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

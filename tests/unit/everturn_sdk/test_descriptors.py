"""How a bundle names its tools, and what is wrong with a bad description, in the words that its author reads."""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from everturn_sdk.descriptors import LoadedTools, load_bundle_tools
from everturn_sdk.tools import BadTool

numbers = itertools.count(1)
TOOL = '''
from everturn_sdk import tool

@tool(effect="pure")
def find(name: str) -> str:
    """Finds."""
    return name
'''
Load = Callable[..., LoadedTools]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Loads a bundle with these files; each has a package of its own."""
    package = f"bundle_{next(numbers)}"
    folder = tmp_path / package
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(folder))

    def load_files(descriptor: str = "", *described: Mapping[str, Any], **files: str) -> LoadedTools:
        folder.mkdir()
        (folder / "__init__.py").touch()
        if descriptor:
            (folder / "tools_descriptor.py").write_text(descriptor)
        for name, text in {"desk": TOOL, **files}.items():
            (folder / f"{name}.py").write_text(text)
        return load_bundle_tools(folder, package, described)

    known = {*sys.modules}
    yield load_files
    for name in {*sys.modules} - known:
        del sys.modules[name]


@pytest.mark.parametrize("place", ['"ref": "desk.py"', '"module": "desk"'])
def test_a_file_or_a_module_of_the_bundle_has_tools(load: Load, place: str):
    loaded = load(f'TOOLS_SPECS = [{{{place}, "alias": "front"}}]')

    assert list(loaded.functions) == ["front.find"]
    assert loaded.functions["front.find"].function("a") == "a"


def test_a_table_of_the_manifest_can_describe_functions_without_a_mark(load: Load):
    plain = 'def close(number: int):\n    """Closes."""\ndef other(): ...\n'
    entry = {"ref": "plain.py", "alias": "desk", "tools": {"close": {"effect": "idempotent", "timeout_s": 5}}}

    (tool,) = load("", entry, plain=plain).description.tools

    assert (tool.tool_id, tool.effect, tool.timeout_s, tool.in_programs) == ("desk.close", "idempotent", 5, True)


def test_mcp_servers_are_named(load: Load):
    loaded = load('MCP_TOOL_SPECS = [{"server_id": "docs", "alias": "docs", "tools": ["search"]}]')

    assert [(each.server_id, each.alias, each.tools) for each in loaded.description.mcp] == [
        ("docs", "docs", ("search",))
    ]


@pytest.mark.parametrize(
    ("descriptor", "why"),
    [
        ('TOOLS_SPECS = "desk"', "TOOLS_SPECS of tools_descriptor.py must be a list."),
        ("TOOLS_SPECS = [{}]", "TOOLS_SPECS[0] of tools_descriptor.py: alias: it is missing"),
        (
            'TOOLS_SPECS = [{"ref": "desk.py", "alias": "desk", "use_sk": True}]',
            "TOOLS_SPECS[0] of tools_descriptor.py: use_sk: unknown key",
        ),
        ('TOOLS_SPECS = [{"alias": "desk"}]', "name either a module or a ref"),
        ('TOOLS_SPECS = [{"ref": "desk.py", "alias": "Desk"}]', "alias: String should match pattern"),
        ('TOOLS_SPECS = [{"ref": "desk.py", "alias": "mcp"}]', "the alias 'mcp' is reserved"),
        (
            'TOOLS_SPECS = [{"ref": "desk.py", "alias": "a"}, {"module": "desk", "alias": "a"}]',
            "alias 'a' is also that of TOOLS_SPECS[0] of tools",
        ),
        ('TOOLS_SPECS = [{"ref": "../x.py", "alias": "a"}]', "a: ../x.py is not in the bundle."),
        ('TOOLS_SPECS = [{"ref": "/etc/passwd", "alias": "a"}]', "a: /etc/passwd is not in the bundle."),
        ('TOOLS_SPECS = [{"ref": "none.py", "alias": "a"}]', "a: none.py is not a Python file of the bundle."),
        ('TOOLS_SPECS = [{"ref": "empty.py", "alias": "a"}]', "empty.py has no function that is marked with @tool."),
        (
            'TOOLS_SPECS = [{"ref": "desk.py", "alias": "a", "tools": {"lost": {}}}]',
            "desk.py has no function 'lost'.",
        ),
        (
            'TOOLS_SPECS = [{"ref": "desk.py", "alias": "a", "tools": {"find": {"effect": "none"}}}]',
            "tools.find.effect: it must be 'pure', 'idempotent' or 'irreversible'",
        ),
        (
            'TOOLS_SPECS = [{"ref": "desk.py", "alias": "a"}]\nTOOL_RUNTIME = {"a.lost": "local"}',
            "TOOL_RUNTIME names the tool 'a.lost', which does not exist.",
        ),
        (
            'TOOLS_SPECS = [{"ref": "desk.py", "alias": "a"}]\nTOOL_RUNTIME = {"a.find": "docker"}',
            "TOOL_RUNTIME['a.find'] is 'docker'; tools run in the process of their bundle, so write 'local'.",
        ),
        ("TOOL_RUNTIME = []", "TOOL_RUNTIME of tools_descriptor.py must be a dictionary."),
        ('MCP_TOOL_SPECS = [{"alias": "a"}]', "MCP_TOOL_SPECS[0] of tools_descriptor.py: server_id: it is missing"),
    ],
)
def test_a_bad_descriptor_says_where_and_what(load: Load, descriptor: str, why: str):
    with pytest.raises(BadTool) as refused:
        load(descriptor, empty="")

    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def f(x): ...", "a.f: the parameter 'x' has no type."),
        ('def f(*x: int): """F."""', "a.f: the parameter 'x' must accept a keyword argument."),
        ('def f(_x: int): """F."""', "a.f: '_x' can't be the name of a parameter. Choose another one."),
        ('def f(model_dump: int): """F."""', "a.f: 'model_dump' can't be the name of a parameter."),
        ('def f(x: "Lost"): """F."""', "a.f: can't read its annotations: name 'Lost' is not defined"),
        ('def f(x: type(open)): """F."""', "a.f: the parameter 'x' has a type that can't be written as JSON: "),
        ('import typing\ndef f(x: typing.Callable): """F."""', "a.f: the parameter 'x' has a type that can't"),
        ("def f(x: int): ...", "a.f: the function has no docstring"),
        ('def f(x: int): """F\\0."""', "a.f: the docstring has the character '\\x00', which no model can be given."),
        ('def f(x: int): """F\\ud800."""', "a.f: the docstring has the character '\\ud800', which no model"),
        ("f = 7", "source.py has no function 'f'."),
    ],
)
def test_a_function_that_can_not_be_a_tool_says_why(load: Load, source: str, why: str):
    with pytest.raises(BadTool) as refused:
        load("", {"ref": "source.py", "alias": "a", "tools": {"f": {}}}, source=source)

    assert why in str(refused.value)


def test_a_mark_that_contradicts_itself_is_refused_where_it_is_written(load: Load):
    source = 'from everturn_sdk import tool\n@tool(requires_approval=True, in_programs=True)\ndef f(): """F."""'

    with pytest.raises(ValueError, match="a program can't wait for a person"):
        load('TOOLS_SPECS = [{"ref": "source.py", "alias": "a"}]', source=source)


def test_a_wrong_option_is_refused_in_a_sentence(load: Load):
    source = 'from everturn_sdk import tool\n@tool(effect="none", timeout_s=900)\ndef f(): """F."""'

    with pytest.raises(ValueError) as refused:
        load('TOOLS_SPECS = [{"ref": "source.py", "alias": "a"}]', source=source)
    assert str(refused.value) == (
        "@tool: effect: it must be 'pure', 'idempotent' or 'irreversible'; timeout_s: it must be less than or equal to "
        "300"
    )


def test_a_mark_needs_no_parentheses(load: Load):
    source = TOOL.replace('(effect="pure")', "")

    assert [*load('TOOLS_SPECS = [{"ref": "source.py", "alias": "a"}]', source=source).functions] == ["a.find"]

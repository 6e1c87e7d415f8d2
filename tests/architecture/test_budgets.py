"""The size budgets hold for every file, and the checks find what they should."""

from collections.abc import Callable, Iterator

import pytest
from architecture_rules.budgets import (
    MAX_TEST_LINES,
    check_classes,
    check_depth,
    check_file_lines,
    check_folders,
    check_functions,
)
from architecture_rules.sources import Module, Violation, load_modules, load_test_modules, render

PER_MODULE = (check_file_lines, check_functions, check_classes, check_depth)


@pytest.mark.parametrize("check", PER_MODULE)
def test_every_module_is_within_its_budgets(check: Callable[[Module], Iterator[Violation]]):
    violations = [found for module in load_modules() for found in check(module)]

    assert not violations, render(violations)


def test_no_folder_has_too_many_files():
    violations = list(check_folders(load_modules()))

    assert not violations, render(violations)


def test_no_test_file_is_too_long():
    violations = [found for module in load_test_modules() for found in check_file_lines(module, MAX_TEST_LINES)]

    assert not violations, render(violations)


def messages(check: Callable[[Module], Iterator[Violation]], text: str, path: str = "a/src/p/m.py") -> list[str]:
    return [found.message for found in check(Module(path, text))]


def build_nested(depth: int) -> str:
    blocks = "".join(f"{'  ' * level}if x:\n" for level in range(1, depth + 1))
    return f"def f(x):\n{blocks}{'  ' * (depth + 1)}pass\n"


@pytest.mark.parametrize(("lines", "count"), [(400, 0), (401, 1)])
def test_a_file_may_have_400_lines(lines: int, count: int):
    assert len(messages(check_file_lines, "x = 1\n" * lines)) == count


@pytest.mark.parametrize(("lines", "count"), [(50, 0), (51, 1)])
def test_a_function_may_have_50_lines(lines: int, count: int):
    assert len(messages(check_functions, "def f():\n" + "    x = 1\n" * (lines - 1))) == count


@pytest.mark.parametrize(("depth", "count"), [(4, 0), (5, 1)])
def test_blocks_may_stand_four_deep(depth: int, count: int):
    assert len(messages(check_functions, build_nested(depth))) == count


def test_an_elif_is_no_deeper_than_its_if():
    ladder = "def f(x):\n  if x == 0:\n    pass\n" + "".join(f"  elif x == {n}:\n    pass\n" for n in range(1, 9))

    assert messages(check_functions, ladder) == []


@pytest.mark.parametrize(
    "holder", ["for x in y:", "while x:", "with x:", "async with x:", "try:", "match x:\n   case 1:"]
)
def test_every_kind_of_block_counts(holder: str):
    inner = "\n".join("      " + line for line in build_nested(4).splitlines()[1:])
    ending = "\n  finally:\n    pass" if holder == "try:" else ""

    found = messages(check_functions, f"async def f(x, y):\n  {holder}\n{inner}{ending}\n")

    assert found == ["f: nesting 5, at most 4"]


@pytest.mark.parametrize(
    ("signature", "count"),
    [
        ("a, b, c, d, e", 0),
        ("self, a, b, c, d, e", 0),
        ("a, b, c, d, e, *, g, h, i", 0),
        ("a, b, c, d, e, f", 1),
        ("a, b, /, c, d, e, f", 1),
    ],
)
def test_a_function_may_have_five_positional_parameters(signature: str, count: int):
    assert len(messages(check_functions, f"def f({signature}): pass")) == count


@pytest.mark.parametrize(("lines", "count"), [(250, 0), (251, 1)])
def test_a_class_may_have_250_lines(lines: int, count: int):
    assert len(messages(check_classes, "class C:\n" + "    x = 1\n" * (lines - 1))) == count


@pytest.mark.parametrize(("methods", "count"), [(15, 0), (16, 1)])
def test_a_class_may_have_15_public_methods_and_any_number_of_private_ones(methods: int, count: int):
    public = "".join(f"    def m{number}(self): pass\n" for number in range(methods))
    private = "".join(f"    def _p{number}(self): pass\n" for number in range(9))

    assert len(messages(check_classes, f"class C:\n{public}{private}")) == count


@pytest.mark.parametrize(("files", "count"), [(15, 0), (16, 1)])
def test_a_folder_may_have_15_files_besides_its_init(files: int, count: int):
    names = ["__init__", *(f"m{number}" for number in range(files))]
    modules = [Module(f"libs/common/src/everturn/model/{name}.py", "") for name in names]

    assert len(list(check_folders(modules))) == count


@pytest.mark.parametrize(("path", "count"), [("src/p/a/b/m.py", 0), ("src/p/a/b/c/m.py", 1)])
def test_a_module_may_lie_three_below_its_package(path: str, count: int):
    assert len(messages(check_depth, "", f"libs/x/{path}")) == count

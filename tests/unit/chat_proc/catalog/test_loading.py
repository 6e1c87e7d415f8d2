"""Modules that an operator names become tools, or stop the start with a sentence."""

from typing import Any

import pytest

from chat_proc.catalog.described import BadToolModule, ToolModule, load_tools, open_tool_threads
from everturn.turns.model import Effect


def entry(**fields: Any) -> ToolModule:
    return ToolModule.model_validate({"alias": "city", "tools": {"find": {}}} | fields)


def test_only_the_functions_that_are_named_are_tools(city_file, threads) -> None:
    tools = load_tools([entry(file=city_file, tools={"count": {"effect": "pure"}, "find": {}})], threads)

    assert [(tool.spec.tool_id, tool.spec.effect) for tool in tools] == [
        ("city.count", Effect.PURE),
        ("city.find", Effect.IRREVERSIBLE),
    ]


def test_a_module_may_be_named_by_its_import_name(threads) -> None:
    (tool,) = load_tools([entry(module="everturn.timeline.inert", tools={"escape_line": {"effect": "pure"}})], threads)

    assert tool.spec.tool_id == "city.escape_line"


@pytest.mark.parametrize("name", ["absent", "NUMBER", "untyped", "spread"])
def test_what_can_be_no_tool_is_refused_by_name(city_file, threads, name: str) -> None:
    with pytest.raises(BadToolModule, match=r"city"):
        load_tools([entry(file=city_file, tools={name: {}})], threads)


@pytest.mark.parametrize("place", [{"module": "no.such.module"}, {"file": "absent.py"}, {"file": "notes.txt"}])
def test_a_module_that_can_not_be_loaded_is_refused(threads, place: dict[str, str]) -> None:
    with pytest.raises(BadToolModule, match="can't be loaded"):
        load_tools([entry(**place)], threads)


def test_a_file_with_broken_syntax_is_refused(tmp_path, threads) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def find(:", encoding="utf-8")

    with pytest.raises(BadToolModule, match="can't be loaded"):
        load_tools([entry(file=path)], threads)


def test_threads_take_nothing_more_when_the_worker_ends() -> None:
    with open_tool_threads() as threads:
        assert threads.submit(int, "7").result(5) == 7

    with pytest.raises(RuntimeError):
        threads.submit(int)

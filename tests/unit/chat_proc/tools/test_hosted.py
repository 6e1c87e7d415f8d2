"""What the worker checks of tools that a bundle describes, whose process may have said anything."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chat_proc.bundles.manifest import BadBundle
from chat_proc.bundles.policy import BuiltinToolsSection
from chat_proc.tools import offered
from chat_proc.tools.hosted import build_params, check_builtin_tools, read_specs
from everturn.core.errors import Invalid
from everturn.turns.model import Effect
from everturn_sdk.protocol import BundleDescription, ToolDescription

USUAL = ToolDescription(
    tool_id="desk.find",
    summary="Finds.",
    guide="Finds.\n\nMore.",
    parameters={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    returns="str",
    effect="idempotent",
    strategy="exploration",
    timeout_s=5,
    untrusted=True,
    in_loop=True,
    in_programs=True,
    requires_approval=False,
    addresses=("name",),
    asks_after_untrusted=True,
)
Schema = dict[str, Any]


def schema_of(**properties: object) -> Schema:
    return {"type": "object", "properties": properties}


def nest(levels: int) -> Schema:
    return {"type": "array", "items": nest(levels - 1)} if levels else {"type": "string"}


def test_a_description_becomes_a_spec():
    (spec,) = read_specs(BundleDescription(tools=(USUAL,)), ("react.read",))

    assert (spec.tool_id, spec.effect, spec.strategy, spec.timeout_s) == (
        "desk.find",
        Effect.IDEMPOTENT,
        "exploration",
        5,
    )
    assert (spec.untrusted, spec.addresses, spec.asks_after_untrusted) == (True, ("name",), True)
    assert spec.params.model_json_schema() == USUAL.parameters


def test_a_tool_with_approval_is_never_for_programs():
    asked = USUAL.model_copy(update={"requires_approval": True})

    (spec,) = read_specs(BundleDescription(tools=(asked,)), ())

    assert not spec.in_programs
    assert "A person has to approve each call" in spec.guide


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tool_id": "react.read"}, "Two tools have the id 'react.read'. Choose another alias."),
        ({"tool_id": "Desk.find"}, "'Desk.find' is not the id of a tool"),
        ({"tool_id": "desk"}, "'desk' is not the id of a tool"),
        ({"tool_id": "a.b.c"}, "'a.b.c' is not the id of a tool"),
        ({"tool_id": f"desk.{'x' * 59}"}, "at most 63 characters"),
        ({"summary": "x" * 301}, "desk.find: the first paragraph of its docstring has 301 characters; at most 300"),
        ({"guide": "x" * 8_001}, "desk.find: its docstring has 8001 characters; at most 8000 are allowed."),
        ({"timeout_s": 301}, "desk.find: timeout_s is 301; it must be between 0 and 300."),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"parameters": {}}, "the schema of its parameters must be that of an object."),
        ({"parameters": {"type": "object", "properties": []}}, "is not valid at properties: [] is not of type"),
        ({"parameters": schema_of(a={"description": "x" * 16_384})}, "at most 16384 are allowed."),
        ({"parameters": schema_of(**{f"p{n}": {} for n in range(65)})}, "it has 65 parameters; at most 64"),
        ({"parameters": schema_of(**{"a b": {}})}, "'a b' can't be the name of a parameter."),
        ({"parameters": schema_of(model_json_schema={})}, "'model_json_schema' can't be the name of a parameter."),
        (
            {"parameters": schema_of(a={"type": "thing"})},
            "its parameters is not valid at properties.a.type: 'thing'",
        ),
        (
            {"parameters": schema_of(a={"$ref": "https://x.example/s"})},
            "'https://x.example/s', outside of itself.",
        ),
        ({"parameters": schema_of(a={"$ref": "#/$defs/Lost"})}, "refers to '#/$defs/Lost', which it does not have."),
        (
            {"parameters": {**schema_of(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}}},
            "has a type that contains itself, '#/$defs/A'.",
        ),
        ({"parameters": schema_of(a=nest(30))}, "is nested more than 24 levels deep."),
    ],
)
def test_a_tool_that_can_not_be_offered_is_refused(changes: dict[str, Any], why: str):
    with pytest.raises(Invalid) as refused:
        read_specs(BundleDescription(tools=(USUAL.model_copy(update=changes),)), ("react.read",))

    assert why in refused.value.detail


def test_two_tools_of_a_bundle_have_different_ids_and_there_are_a_hundred_at_most():
    with pytest.raises(Invalid, match="Two tools have the id"):
        read_specs(BundleDescription(tools=(USUAL, USUAL)), ())
    many = tuple(USUAL.model_copy(update={"tool_id": f"desk.t{number}"}) for number in range(101))
    with pytest.raises(Invalid, match="has 101 tools; at most 100"):
        read_specs(BundleDescription(tools=many), ())


def test_references_that_multiply_are_refused_at_once():
    definitions = {
        f"T{level}": schema_of(**{f"p{number}": {"$ref": f"#/$defs/T{level + 1}"} for number in range(20)})
        for level in range(4)
    }
    schema = {**schema_of(a={"$ref": "#/$defs/T0"}), "$defs": {**definitions, "T4": {"type": "string"}}}

    with pytest.raises(Invalid, match="more than 1000 parts"):
        read_specs(BundleDescription(tools=(USUAL.model_copy(update={"parameters": schema}),)), ())


@pytest.mark.parametrize(
    ("described", "value", "read"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "number"}, 1, 1.0),
        ({"type": "boolean"}, True, True),
        ({"type": "array", "items": {"type": "integer"}}, ["x"], ["x"]),
        ({"enum": ["a", "b"], "type": "string"}, "a", "a"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None),
        ({"type": "string", "format": "date"}, "2026-11-29", "2026-11-29"),
        ({}, {"any": 1}, {"any": 1}),
    ],
)
def test_outer_types_of_arguments_are_read(described: Schema, value: object, read: object):
    params = build_params("desk.find", schema_of(a=described))

    assert params.model_validate({"a": value}).model_dump() == {"a": read}


@pytest.mark.parametrize(
    ("described", "value"),
    [({"type": "integer"}, "many"), ({"type": "string"}, 5), ({"type": "object"}, []), ({"enum": ["a"]}, "b")],
)
def test_outer_types_of_arguments_are_checked(described: Schema, value: object):
    with pytest.raises(ValidationError):
        build_params("desk.find", schema_of(a=described)).model_validate({"a": value})


def test_an_author_s_pattern_is_not_evaluated_here():
    schema = schema_of(a={"type": "string", "pattern": "(a+)+$"})

    assert build_params("desk.find", schema).model_validate({"a": "a" * 50 + "b"})
    assert json.dumps(schema)


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"off": ("web_tools.web_serch",)}, "There is no tool 'web_tools.web_serch'. The tools are: "),
        ({"ask": ("desk.find",)}, "There is no tool 'desk.find'."),
        ({"off": ("react.read",)}, "react.read can't be switched off, because every agent needs it."),
    ],
)
def test_only_tools_that_exist_can_be_switched_off(section: dict[str, Any], why: str):
    with pytest.raises(BadBundle) as refused:
        check_builtin_tools(BuiltinToolsSection(**section), ("city.find",))

    assert why in refused.value.detail
    check_builtin_tools(
        BuiltinToolsSection(off=("web_tools.web_fetch", "city.find"), ask=("memory.write",)), ("city.find",)
    )


def test_all_tools_of_the_platform_are_known():
    sources = Path(offered.__file__).parent.rglob("*.py")

    found = {tool_id for file in sources for tool_id in re.findall(r'tool_id="([a-z_]+[.][a-z_]+)"', file.read_text())}

    assert len(found) > 15
    assert found <= offered.BUILTIN_TOOLS

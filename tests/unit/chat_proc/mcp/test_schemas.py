"""Schemas of servers as parameters of tools: exact messages for models, and no work without bounds."""

import time
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from chat_proc.catalog.schemas import MAX_PARTS
from chat_proc.catalog.tool import ToolRegistry, ToolSpec, validate_strictly
from chat_proc.channels.codec import build_parameters
from chat_proc.mcp.schemas import build_params, read_arguments
from chat_proc.tools.code.program_calls import build_rules
from everturn.core.errors import Invalid
from everturn.turns.model import Effect

SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "path": {"type": "string", "pattern": "^/[a-z]+$", "description": "Where it is."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10},
        "tags": {"type": "array", "items": {"$ref": "#/definitions/tag"}, "maxItems": 2},
        "class": {"enum": ["a", "b"]},
        "json": True,
    },
    "required": ["path"],
    "additionalProperties": False,
    "definitions": {"tag": {"type": "string", "maxLength": 3}},
}


def spec_of(schema: dict[str, Any]) -> ToolSpec:
    return ToolSpec("mcp.x.y", "Do it.", "Do it.", build_params("y", schema), Effect.PURE)


class _Tool:
    def __init__(self, schema: dict[str, Any]) -> None:
        self.spec = spec_of(schema)


def complaint(schema: dict[str, Any], params: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as raised:
        ToolRegistry([_Tool(schema)]).check_params("mcp.x.y", params)  # pyright: ignore[reportArgumentType]
    return raised.value.detail


def test_a_model_sees_the_schema_without_references() -> None:
    shown = build_parameters(spec_of(SCHEMA))
    assert shown["properties"] == {
        "path": {"type": "string", "pattern": "^/[a-z]+$", "description": "Where it is."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "class": {"enum": ["a", "b"]},
        "json": {},
    }
    assert (shown["required"], shown["additionalProperties"]) == (["path"], False)
    assert not {"$schema", "definitions", "$defs"} & shown.keys()


def test_arguments_keep_the_servers_names_and_leave_out_what_is_absent() -> None:
    params = build_params("y", SCHEMA).model_validate({"path": "/a", "class": "b", "json": [1], "limit": "5"})
    assert read_arguments(params) == {"path": "/a", "class": "b", "json": [1], "limit": 5}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "path: Field required"),
        ({"path": 7}, "path: Input should be a valid string"),
        ({"path": "A"}, "path: it does not match the pattern"),
        ({"path": "/a", "limit": 11}, "limit: 11 is greater than the maximum of 10"),
        ({"path": "/a", "tags": ["ok", "long"]}, "tags.1: 'long' is too long"),
        ({"path": "/a", "class": "c"}, "class: 'c' is not one of ['a', 'b']"),
        ({"path": "/a", "where": 1}, "Additional properties are not allowed ('where' was unexpected)"),
    ],
)
def test_wrong_arguments_get_an_exact_message(params: dict[str, Any], message: str) -> None:
    text = complaint(SCHEMA, params)
    assert message in text
    assert text.endswith("Its parameters are, in this order: path, limit, tags, class, json.")


def test_programs_get_no_conversions() -> None:
    with pytest.raises(ValidationError, match="valid integer"):
        validate_strictly(build_params("y", SCHEMA), {"path": "/a", "limit": "5"})


def test_programs_get_the_rules_that_a_gateway_can_check() -> None:
    rules = {rule.name: rule for rule in build_rules(build_params("y", SCHEMA))}
    assert (rules["limit"].maximum, rules["tags"].max_items, rules["tags"].max_item_chars) == (10, 2, 3)


def test_choices_at_the_top_are_checked_but_not_shown() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    assert "anyOf" not in build_parameters(spec_of(schema))
    assert "is not valid under any of the given schemas" in complaint(schema, {})


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def _bomb() -> dict[str, Any]:
    names = {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 10} for level in range(9)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**names, "d9": {}}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string"}, "its parameters are not an object"),
        ({"type": "object", "properties": [1]}, "its schema is not valid at properties"),
        ({"type": "object", "properties": {"a b": {}}}, "a parameter with the name 'a b'"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "its schema is not valid at properties.a.type"),
        ({"type": "object", "properties": {"a": 5}}, "in place of a schema"),
        ({"type": "object", "properties": {"a": {"$ref": "https://evil.example/x"}}}, "outside of itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "which it does not have"),
        ({"type": "object", "properties": {"a": {"$dynamicRef": "#b"}}}, "uses \\$dynamicRef"),
        ({"type": "object", "properties": {"a": {"maximum": float("inf")}}}, "not finite"),
        ({"type": "object", "properties": {"a": {"enum": ["x" * 30_000]}}}, "at most 24000 are allowed"),
        ({"type": "object", "properties": {f"p{n}": {} for n in range(65)}}, "at most 64 are allowed"),
        (_nested(30), "nested more than 24 levels"),
        (_bomb(), f"more than {MAX_PARTS} parts"),
    ],
)
def test_a_schema_that_no_model_can_be_given_is_refused_quickly(schema: dict[str, Any], reason: str) -> None:
    began = time.process_time()
    with pytest.raises(Invalid, match=reason):
        build_params("y", schema)
    assert time.process_time() - began < 0.5


def test_a_type_that_contains_itself_ends_as_any_value() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}}}
    model = build_params(
        "y", {"type": "object", "properties": {"list": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    )
    assert read_arguments(model.model_validate({"list": {"value": 1, "next": {"value": "any"}}}))
    with pytest.raises(ValidationError, match="is not of type 'integer'"):
        model.model_validate({"list": {"value": "x"}})


def test_a_multiple_that_nothing_can_be_divided_by_is_refused() -> None:
    for place in ({"properties": {"a": {"multipleOf": 10**400}}}, {"allOf": [{"items": {"multipleOf": -(10**400)}}]}):
        with pytest.raises(Invalid, match="its schema has a multipleOf that is too large"):
            build_params("y", {"type": "object", **place})


@pytest.mark.parametrize("step", [10**308, 1e308, 0.1, 5e-324], ids="{:g}".format)
@pytest.mark.parametrize("given", [7, 0.7, 1e308, 10**400], ids=["7", "0.7", "1e308", "1e400"])
def test_any_number_can_be_checked_for_multiples(step: float, given: float) -> None:
    model = build_params("y", {"type": "object", "properties": {"a": {"type": "number", "multipleOf": step}}})
    try:
        model.model_validate({"a": given})
    except ValidationError as error:
        assert error.errors()[0]["type"] == "json_schema"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(?=a)", "(a|a)*b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    model: type[BaseModel] = build_params(
        "y", {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    )
    began = time.process_time()
    try:
        model.model_validate({"a": "a" * 50_000 + "!"})
    except ValidationError as error:
        assert "does not match" in str(error)
    assert time.process_time() - began < 0.5


def test_whether_items_are_unique_is_left_to_the_server() -> None:
    # The check compares each item with all others, on the event loop.
    model = build_params("y", {"type": "object", "properties": {"rows": {"type": "array", "uniqueItems": True}}})
    given = {"rows": [{"a": 1}, {"a": 1}]}

    assert read_arguments(model.model_validate(given)) == given


def test_names_of_python_are_parameters_like_others() -> None:
    names = ["class", "model_config", "json", "_private", "copy", "a-b", "parameter_0"]
    model = build_params("y", {"type": "object", "properties": {name: {"type": "string"} for name in names}})
    given = {name: name.upper() for name in names}
    assert read_arguments(model.model_validate(given)) == given


def test_huge_arguments_are_refused() -> None:
    model = build_params("y", {"type": "object", "properties": {"a": {"type": "string"}}})
    with pytest.raises(ValidationError, match="more than 262144 characters"):
        model.model_validate({"a": "x" * 300_000})

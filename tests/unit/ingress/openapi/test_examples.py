"""Examples follow from schemas."""

from typing import Any

from ingress.openapi.descriptions import add_examples, build_example

SCHEMAS: dict[str, Any] = {
    "Item": {
        "type": "object",
        "required": ["turn_id", "state", "created_at", "tags", "count"],
        "properties": {
            "turn_id": {"type": "string"},
            "state": {"enum": ["idle", "running"]},
            "created_at": {"type": "string"},
            "tags": {"type": "array", "items": {"anyOf": [{"type": "null"}, {"const": "a"}]}},
            "count": {"type": "integer", "minimum": 3},
            "note": {"type": "string"},
            "shown": {"type": "boolean", "examples": [True]},
        },
    },
    "Loop": {"type": "object", "required": ["again"], "properties": {"again": {"$ref": "#/components/schemas/Loop"}}},
}


def test_what_is_required_or_has_an_example_is_there() -> None:
    example = build_example({"$ref": "#/components/schemas/Item"}, SCHEMAS)

    assert example.pop("turn_id").startswith("turn_")
    assert example == {
        "state": "idle", "created_at": "2026-03-01T12:00:00.000Z", "tags": ["a"], "count": 3, "shown": True,
    }  # fmt: skip


def test_a_schema_that_holds_itself_ends() -> None:
    assert build_example({"$ref": "#/components/schemas/Loop"}, SCHEMAS) is not None


def test_a_written_example_is_kept() -> None:
    written = {"application/json": {"schema": {"type": "integer"}, "example": 7}}
    bare = {"application/json": {"schema": {"type": "integer"}}}
    operation = {"requestBody": {"content": written}, "responses": {"200": {"content": bare}, "404": {}}}

    add_examples({"components": {"schemas": {}}, "paths": {"/x": {"post": operation}}})

    assert written["application/json"]["example"] == 7
    assert bare["application/json"]["example"] == 1

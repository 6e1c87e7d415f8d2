"""Descriptions and examples for the API document of calls and events.

A field is described by the text below its declaration. Only names that many schemas share are described here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

_SHARED_TEXTS: Final[Mapping[str, str]] = {
    "approval_id": "The id of the approval.",
    "attachments": "The attached files.",
    "call_id": "The id of the tool call.",
    "conversation_id": "The conversation's id.",
    "created_at": "When it was created, in ISO 8601 (UTC).",
    "cursor": "The id of the last event that is included. Streams continue after it.",
    "expires_at": "When it expires, in ISO 8601 (UTC).",
    "items": "The results, in order.",
    "mime": "The MIME type of the file.",
    "next_cursor": "The `cursor` of the next page; absent at the end.",
    "params": "The parameters of the call.",
    "position": "How many turns are ahead of the queued turn, 0 if it is next; absent unless one is queued.",
    "position_more": "Whether more than `position` turns are ahead.",
    "ref": "Its ref on the timeline.",
    "round": "The round of the turn that it belongs to, from 1; 0 is before the first.",
    "tool_id": "The tool that is called.",
    "ts": "When it happened, in ISO 8601 (UTC).",
    "turn_id": "The turn's id.",
}

JSON = "application/json"
MAX_DEPTH = 12
_UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
_EXAMPLES_BY_NAME: dict[str, Any] = {
    "conversation_id": f"conv_{_UUID}",
    "turn_id": f"turn_{_UUID}",
    "signal_id": f"sig_{_UUID}",
    "artifact_id": f"art_{_UUID}",
    "plan_id": f"plan_{_UUID}",
    "call_id": f"call_{_UUID}",
    "cursor": "3-17",
    "user_id": "ann",
    "title": "Sales by region",
    "text": "What is the total by region?",
    "sha256": "0" * 64,
}
_MOMENTS = ("ts", "_at", "_ts")
_PLAIN: dict[str, Any] = {"string": "text", "integer": 1, "number": 0.5, "boolean": False, "null": None}

Schema = Mapping[str, Any]


def describe_fields(schemas: Mapping[str, dict[str, Any]]) -> None:
    """Describe the fields of these JSON Schemas that have a shared name and no text of their own."""
    for schema in schemas.values():
        for field, about in schema.get("properties", {}).items():
            if field in _SHARED_TEXTS:
                about.setdefault("description", _SHARED_TEXTS[field])


def add_examples(document: dict[str, Any]) -> None:
    """Add an example to every JSON body of a request and of a successful response."""
    schemas = cast(dict[str, Schema], document["components"]["schemas"])
    for operation in _operations(document):
        for content in _json_contents(operation):
            if "example" not in content and "examples" not in content and "schema" in content:
                content["example"] = build_example(content["schema"], schemas)


def build_example(schema: Schema, schemas: Mapping[str, Schema], *, name: str = "", depth: int = 0) -> Any:
    """Build a value that matches the schema; `name` is the field's name, which often says more than its type."""
    if depth > MAX_DEPTH:
        return None
    if "$ref" in schema:
        target = schemas[str(schema["$ref"]).rpartition("/")[2]]
        return build_example(target, schemas, name=name, depth=depth + 1)
    if schema.get("examples"):
        return schema["examples"][0]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return build_example(_choose(schema[union]), schemas, name=name, depth=depth + 1)
    match schema.get("type"):
        case "object":
            return _build_object(schema, schemas, depth)
        case "array":
            return [build_example(schema["items"], schemas, depth=depth + 1)] if "items" in schema else []
        case kind:
            return _build_plain(schema, str(kind), name)


def _build_object(schema: Schema, schemas: Mapping[str, Schema], depth: int) -> dict[str, Any]:
    """Build an object with the required fields and those with examples."""
    fields = cast(Mapping[str, Schema], schema.get("properties", {}))
    required = set(schema.get("required", ()))
    shown = {name: field for name, field in fields.items() if name in required or field.get("examples")}
    return {name: build_example(field, schemas, name=name, depth=depth + 1) for name, field in shown.items()}


def _build_plain(schema: Schema, kind: str, name: str) -> Any:
    if kind == "string":
        if schema.get("format") == "date-time" or name.endswith(_MOMENTS):
            return "2026-03-01T12:00:00.000Z"
        return _EXAMPLES_BY_NAME.get(name, _PLAIN["string"])
    if kind in ("integer", "number"):
        return schema.get("minimum", _PLAIN[kind])
    return _PLAIN.get(kind)


def _choose(options: list[Schema]) -> Schema:
    return next((each for each in options if each.get("type") != "null"), options[0])


def _operations(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for item in document["paths"].values():
        yield from (operation for operation in item.values() if isinstance(operation, dict))


def _json_contents(operation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    bodies = [operation.get("requestBody", {})]
    bodies += [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    for body in bodies:
        content = body.get("content", {})
        if JSON in content:
            yield content[JSON]

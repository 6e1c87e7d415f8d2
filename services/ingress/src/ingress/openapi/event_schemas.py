"""The JSON Schemas of the events that a stream sends, for clients that generate types from schemas."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from everturn.events.model import AnyEvent, Envelope
from ingress.openapi.descriptions import describe_fields

REF = "#/components/schemas/{model}"
_NULL = {"type": "null"}


def build_event_schemas() -> dict[str, Any]:
    """JSON Schemas by name. `Event` is one event of the stream: a union with a variant per type, discriminated by
    `type`.

    As in `encode_envelope`, a payload has no `type` of its own and null fields are omitted.
    """
    kinds = cast(tuple[type[BaseModel], ...], get_args(AnyEvent))
    _, document = models_json_schema([(kind, "serialization") for kind in kinds], ref_template=REF)
    schemas: dict[str, Any] = {name: _leave_out_nulls(schema) for name, schema in document["$defs"].items()}
    for kind in kinds:
        schemas[kind.__name__] = _leave_out_type(schemas[kind.__name__])
    variants = {f"{kind.__name__}Event": _build_variant(kind) for kind in kinds}
    schemas |= variants
    describe_fields(schemas)
    return {**schemas, "Event": {"oneOf": [{"$ref": REF.format(model=name)} for name in variants]}}


def _build_variant(kind: type[BaseModel]) -> dict[str, Any]:
    """The envelope around one kind of payload."""
    envelope = _leave_out_nulls(Envelope.model_json_schema(mode="serialization"))
    properties = {
        **envelope["properties"],
        "type": {"const": kind.model_fields["type"].default, **_description_of(envelope, "type")},
        "data": {"$ref": REF.format(model=kind.__name__), **_description_of(envelope, "data")},
    }
    return {**envelope, "title": f"{kind.__name__}Event", "properties": properties, "$defs": {}}


def _description_of(schema: Mapping[str, Any], field: str) -> dict[str, Any]:
    return {"description": schema["properties"][field]["description"]}


def _leave_out_type(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = {name: each for name, each in schema["properties"].items() if name != "type"}
    required = [name for name in schema["required"] if name != "type"]
    return {**schema, "properties": properties, "required": required}


def _leave_out_nulls(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The object's schema for JSON without nulls: nullable fields are optional and all others required."""
    if "properties" not in schema:
        return dict(schema)
    properties = {name: _leave_out_null(each) for name, each in schema["properties"].items()}
    required = sorted(name for name, each in schema["properties"].items() if not _may_be_null(each))
    return {**schema, "properties": properties, "required": required}


def _leave_out_null(field: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in field.items() if key != "default"}
    if not _may_be_null(field):
        return rest
    choices = [choice for choice in rest.pop("anyOf") if choice != _NULL]
    return {**rest, **choices[0]} if len(choices) == 1 else {**rest, "anyOf": choices}


def _may_be_null(field: Mapping[str, Any]) -> bool:
    return _NULL in field.get("anyOf", ())

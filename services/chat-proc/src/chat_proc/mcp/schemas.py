"""Turns the JSON Schema of a tool's input into a parameters model, or says why no model can be given it.

A server can write any schema. References are expanded within a budget, so that checking arguments takes time in
proportion to schema and arguments; patterns run in RE2, which has no slow ones. Building takes up to 50 ms: call it in
a thread.
"""

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, Final, cast

from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as SchemaViolation
from jsonschema.protocols import Validator
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from chat_proc.workspace.text_search import Pattern
from everturn.core.errors import Invalid

MAX_NODES: Final = 1_000
"""Objects of a schema after its references are expanded."""
MAX_SCHEMA_CHARS: Final = 24_000
"""Limit of the expanded schema as JSON: some 6,000 tokens in each request."""
MAX_DEPTH: Final = 24
MAX_DESCRIPTION_CHARS: Final = 1_000
MAX_PARAMETERS: Final = 64
MAX_ARGUMENT_CHARS: Final = 256 * 1024
"""Limit of the arguments of one call as JSON."""
MAX_PROBLEMS: Final = 5
MAX_MESSAGE_CHARS: Final = 300

_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What providers accept as the name of a parameter."""
_DROPPED: Final = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "$vocabulary", "id", "examples", "deprecated"}
)
_UNCHECKED: Final = frozenset({"patternProperties", "unevaluatedProperties", "unevaluatedItems", "format"})
"""Left to the server: checking them runs patterns of the standard library, or takes more than one pass."""
_ONE_OF_SCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA: Final = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_NAMED_SCHEMAS: Final = frozenset({"dependentSchemas", "patternProperties", "properties"})
_SCALARS: Final[Mapping[str, Any]] = {"string": str, "integer": int, "number": int | float, "boolean": bool}
_TOP_LEVEL_CHOICES: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const")
"""Providers reject these at the top of a tool's parameters; arguments are still checked against them."""


def build_params(name: str, schema: Mapping[str, Any]) -> type[BaseModel]:
    """The parameters model of a tool with this input schema. Raises Invalid with the reason if there is none."""
    expanded = cast("dict[str, Any]", _Expansion(schema).expand(schema, 0))
    if expanded.get("type", "object") != "object":
        raise Invalid("its parameters are not an object")
    expanded["type"] = "object"
    properties = cast("dict[str, dict[str, Any]]", expanded.setdefault("properties", {}))
    if not isinstance(cast("object", properties), dict):
        raise Invalid("its parameters are not named")
    if len(properties) > MAX_PARAMETERS:
        raise Invalid(f"it has {len(properties)} parameters; at most {MAX_PARAMETERS} are allowed")
    if bad := [each for each in properties if not _PROPERTY.fullmatch(each)]:
        raise Invalid(f"models can't be given a parameter with the name {bad[0][:80]!a}")
    try:
        text = json.dumps(expanded, allow_nan=False)
    except ValueError as error:
        raise Invalid("its schema has a number that is not finite") from error
    if len(text) > MAX_SCHEMA_CHARS:
        raise Invalid(f"its schema has {len(text)} characters; at most {MAX_SCHEMA_CHARS} are allowed")
    try:
        Draft202012Validator.check_schema(expanded, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        place = ".".join(map(str, error.absolute_path)) or "its root"
        raise Invalid(f"its schema is not valid at {place}: {error.message[:MAX_MESSAGE_CHARS]}") from error
    return _build_model(name, expanded, properties)


class _Expansion:
    """Copies a schema with its local references expanded, within the budget of MAX_NODES."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_NODES

    def expand(self, node: object, depth: int, open_references: tuple[str, ...] = ()) -> object:
        if isinstance(node, bool):
            return {} if node else {"not": {}}
        if not isinstance(node, Mapping):
            raise Invalid(f"its schema has {str(node)[:40]!a} in place of a schema")
        self._left -= 1
        if self._left < 0:
            raise Invalid(f"its schema has more than {MAX_NODES} parts once its references are expanded")
        if depth > MAX_DEPTH:
            raise Invalid(f"its schema is nested more than {MAX_DEPTH} levels deep")
        fields = dict(cast("Mapping[str, Any]", node))
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in fields:
                raise Invalid(f"its schema uses {key}, which is not supported")
        reference = fields.pop("$ref", None)
        if reference is not None:
            if reference in open_references:
                # A type that contains itself ends here as any value.
                return {}
            target = self._find(reference)
            inner = self.expand(target, depth + 1, (*open_references, cast("str", reference)))
            fields = {**cast("dict[str, Any]", inner), **self._expand_fields(fields, depth, open_references)}
            return fields
        return self._expand_fields(fields, depth, open_references)

    def _expand_fields(self, fields: Mapping[str, Any], depth: int, opened: tuple[str, ...]) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, value in cast("Mapping[str, object]", fields).items():
            if key in _DROPPED:
                continue
            if isinstance(value, list) and (key in _ONE_OF_SCHEMAS or key == "items"):
                # Drafts before 2020-12 list the types of the first items in `items`.
                name, listed = "prefixItems" if key == "items" else key, cast("list[object]", value)
                copied[name] = [self.expand(each, depth + 1, opened) for each in listed]
            elif key in _NAMED_SCHEMAS and isinstance(value, Mapping):
                named = cast("Mapping[str, object]", value)
                copied[key] = {name: self.expand(each, depth + 1, opened) for name, each in named.items()}
            elif key == "additionalProperties" and isinstance(value, bool):
                copied[key] = value
            elif key in _SCHEMA:
                copied[key] = self.expand(cast("object", value), depth + 1, opened)
            elif key == "description":
                copied[key] = str(cast("object", value))[:MAX_DESCRIPTION_CHARS]
            elif key == "nullable" or key.startswith("x-"):
                continue
            else:
                copied[key] = int(value) if isinstance(value, float) and value.is_integer() else value
        return copied

    def _find(self, reference: object) -> object:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Invalid(f"its schema refers to {str(reference)[:80]!a}, outside of itself")
        target: object = self._root
        for part in filter(None, reference.removeprefix("#").split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or name not in target:
                raise Invalid(f"its schema refers to {reference[:80]!a}, which it does not have")
            target = cast("Mapping[str, object]", target)[name]
        return target


def _check_pattern(
    _: Draft202012Validator, pattern: object, instance: object, __: object
) -> Generator[SchemaViolation, None, None]:
    if not isinstance(instance, str) or not isinstance(pattern, str):
        return
    found = _try_search(pattern, instance)
    if found is False:
        yield SchemaViolation(f"it does not match the pattern {pattern[:100]!a}")


def _try_search(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found; None for one that RE2 does not know, which is left to the server."""
    try:
        return Pattern(pattern).find(text) is not None
    except Invalid:
        return None


_extend = cast("Any", validators).extend
_Checker: Final = cast("type[Validator]", _extend(Draft202012Validator, {"pattern": _check_pattern}))


def _for_checking(node: object) -> object:
    """The schema without the keywords that are left to the server."""
    if isinstance(node, list):
        return [_for_checking(each) for each in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, object]", node)
    unchecked = _UNCHECKED | {"additionalProperties"} if "patternProperties" in fields else _UNCHECKED
    return {
        key: {name: _for_checking(each) for name, each in cast("dict[str, object]", value).items()}
        if key in _NAMED_SCHEMAS and isinstance(value, dict)
        else (value if key in ("const", "enum", "default", "required") else _for_checking(value))
        for key, value in fields.items()
        if key not in unchecked
    }


def _build_model(name: str, schema: dict[str, Any], properties: Mapping[str, Mapping[str, Any]]) -> type[BaseModel]:
    required = set(cast("list[str]", schema.get("required", [])))
    fields: dict[str, Any] = {}
    for number, (key, each) in enumerate(properties.items()):
        kind = each.get("type")
        hint = _SCALARS.get(kind, Any) if isinstance(kind, str) else Any
        # Names of ours, because a server's can be keywords or methods of a model.
        fields[f"parameter_{number}"] = (hint, Field(... if key in required else None, alias=key))
    model = create_model(name, __base__=_Params, **fields)
    model.shown_schema = {key: value for key, value in schema.items() if key not in _TOP_LEVEL_CHOICES}
    checker = _Checker(cast("dict[str, Any]", _for_checking(schema)))
    model.find_problems = cast("Any", checker.iter_errors)
    return model


def read_arguments(params: BaseModel) -> dict[str, Any]:
    """The arguments as the server gets them: only those that were given, under its own names."""
    return params.model_dump(by_alias=True, exclude_unset=True)


class _Params(BaseModel):
    """Arguments that fit a server's schema. The fields convert what a model writes, such as "5" for 5."""

    model_config = ConfigDict(frozen=True, extra="allow")

    shown_schema: ClassVar[dict[str, Any]] = {}
    find_problems: ClassVar[Callable[[object], Iterator[SchemaViolation]]]

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(cls.shown_schema)

    @model_validator(mode="after")
    def check_schema_of_server(self) -> "_Params":
        arguments = read_arguments(self)
        if len(json.dumps(arguments)) > MAX_ARGUMENT_CHARS:
            raise ValueError(f"the arguments have more than {MAX_ARGUMENT_CHARS} characters")
        if problems := list(islice(type(self).find_problems(arguments), MAX_PROBLEMS)):
            raise ValidationError.from_exception_data(type(self).__name__, [_describe(each) for each in problems])
        return self


def _describe(problem: SchemaViolation) -> InitErrorDetails:
    # The message is text of the server's schema and the model's arguments, not a template.
    message = PydanticCustomError("json_schema", "{message}", {"message": problem.message[:MAX_MESSAGE_CHARS]})
    return InitErrorDetails(type=message, loc=tuple(problem.absolute_path), input=None)

"""Turns the JSON Schema of a tool's input into a parameters model, or says why no model can be given it.

A server can write any schema. Patterns run in RE2, which has no slow ones. Building takes up to 50 ms: call it in a
thread.
"""

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, Final, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError as SchemaViolation
from jsonschema.protocols import Validator
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from chat_proc.catalog.schemas import MAX_MESSAGE_CHARS, MAX_PARAMETERS, Keywords, check_schema, expand_schema
from chat_proc.workspace.text_search import Pattern
from everturn.core.errors import Invalid

MAX_SCHEMA_CHARS: Final = 24_000
"""Limit of the expanded schema as JSON: some 6,000 tokens in each request."""
MAX_DESCRIPTION_CHARS: Final = 1_000
MAX_ARGUMENT_CHARS: Final = 256 * 1024
"""Limit of the arguments of one call as JSON."""
MAX_PROBLEMS: Final = 5

_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What providers accept as the name of a parameter."""
_DROPPED: Final = frozenset({"deprecated", "examples", "nullable"})
_UNCHECKED: Final = frozenset(
    {"patternProperties", "unevaluatedProperties", "unevaluatedItems", "uniqueItems", "format"}
)
"""Left to the server: checking them runs patterns of the standard library, or takes more than one pass."""
_SCALARS: Final[Mapping[str, Any]] = {"string": str, "integer": int, "number": int | float, "boolean": bool}
_TOP_LEVEL_CHOICES: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const")
"""Providers reject these at the top of a tool's parameters; arguments are still checked against them."""


def name_tool(name: str) -> str:
    """The name that a server's tool has in its id."""
    return _NOT_NAME.sub("_", name)


def build_params(name: str, schema: Mapping[str, Any]) -> type[BaseModel]:
    """The parameters model of a tool with this input schema. Raises Invalid with the reason if there is none."""
    try:
        expanded = expand_schema(schema, _clean, allows_recursion=True)
        check_schema(expanded)
        checked = expand_schema(expanded, _leave_to_server)
    except Invalid as error:
        raise Invalid(f"its schema {error.detail}") from error
    if expanded.setdefault("type", "object") != "object":
        raise Invalid("its parameters are not an object")
    properties: Mapping[str, Keywords] = expanded.setdefault("properties", {})
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
    return _build_model(name, expanded, checked)


def _clean(fields: Keywords) -> Keywords:
    """What models see of a schema."""
    cleaned: dict[str, Any] = {}
    for key, value in fields.items():
        if key == "description":
            cleaned[key] = str(value)[:MAX_DESCRIPTION_CHARS]
        elif key not in _DROPPED and not key.startswith("x-"):
            cleaned[key] = int(value) if isinstance(value, float) and value.is_integer() else value
    return cleaned


def _leave_to_server(fields: Keywords) -> Keywords:
    """What is checked of a schema."""
    unchecked = _UNCHECKED | {"additionalProperties"} if "patternProperties" in fields else _UNCHECKED
    return {key: value for key, value in fields.items() if key not in unchecked}


def _check_pattern(
    _: Draft202012Validator, pattern: object, instance: object, __: object
) -> Generator[SchemaViolation, None, None]:
    if not isinstance(instance, str) or not isinstance(pattern, str):
        return
    found = _try_search(pattern, instance)
    if found is False:
        yield SchemaViolation(f"it does not match the pattern {pattern[:100]!a}")


def _check_multiple(
    checker: Draft202012Validator, step: object, instance: object, schema: object
) -> Generator[SchemaViolation, None, None]:
    try:
        yield from Draft202012Validator.VALIDATORS["multipleOf"](checker, step, instance, schema)
    except OverflowError:
        yield SchemaViolation("it is too large to be divided")


def _try_search(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found; None for one that RE2 does not know, which is left to the server."""
    try:
        return Pattern(pattern).find(text) is not None
    except Invalid:
        return None


_extend = cast("Any", validators).extend
_Checker: Final = cast(
    "type[Validator]", _extend(Draft202012Validator, {"pattern": _check_pattern, "multipleOf": _check_multiple})
)


def _build_model(name: str, schema: Keywords, checked: dict[str, Any]) -> type[BaseModel]:
    required = set(cast("list[str]", schema.get("required", [])))
    fields: dict[str, Any] = {}
    for number, (key, each) in enumerate(cast("Mapping[str, Keywords]", schema["properties"]).items()):
        kind = each.get("type")
        hint = _SCALARS.get(kind, Any) if isinstance(kind, str) else Any
        # Names of ours, because a server's can be keywords or methods of a model.
        fields[f"parameter_{number}"] = (hint, Field(... if key in required else None, alias=key))
    model = create_model(name, __base__=_Params, **fields)
    model.shown_schema = {key: value for key, value in schema.items() if key not in _TOP_LEVEL_CHOICES}
    model.find_problems = cast("Any", _Checker(checked).iter_errors)
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

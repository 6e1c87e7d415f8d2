"""JSON Schemas that others write, such as the authors of bundles and MCP servers, as models are given them: without
references. Each is replaced by what it leads to, within a budget, so that checking a value takes time in proportion to
schema and value.

A large schema takes up to 50 ms: read it in a thread.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError

from everturn.core.errors import Invalid

MAX_AUTHOR_BYTES: Final = 16 * 1024
"""Size limit of a schema in the code of a bundle, as JSON."""
MAX_PARTS: Final = 1_000
"""Schemas within a schema, after its references are expanded."""
MAX_DEPTH: Final = 24
MAX_PARAMETERS: Final = 64
MAX_MESSAGE_CHARS: Final = 300

_NAMED_SCHEMAS: Final = frozenset({"dependentSchemas", "patternProperties", "properties"})
_LISTED_SCHEMAS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_SCHEMAS: Final = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_DROPPED: Final = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "$vocabulary", "id", "$ref"}
)
Keywords = Mapping[str, Any]


def expand_schema(
    schema: Keywords, change: Callable[[Keywords], Keywords] = dict, *, allows_recursion: bool = False
) -> dict[str, Any]:
    """A copy without references, each of whose objects has the keywords that `change` keeps of it. With
    `allows_recursion`, a type that contains itself ends there as any value. Raises Invalid with what is wrong, as the
    end of a sentence about the schema."""
    return _Expansion(schema, change, allows_recursion).expand(schema, 0)


def check_schema(schema: Keywords) -> None:
    """Raise Invalid, in the same way, unless each keyword has a value that it can have."""
    try:
        Draft202012Validator.check_schema(dict(schema), format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        place = ".".join(map(str, error.absolute_path)) or "its root"
        raise Invalid(f"is not valid at {place}: {error.message[:MAX_MESSAGE_CHARS]}") from error


def read_author_schema(subject: str, schema: Keywords, change: Callable[[Keywords], Keywords] = dict) -> dict[str, Any]:
    """The same, checked, for the schema of an object in the code of a bundle. The sentence begins with `subject`."""
    size = len(json.dumps(schema))
    if size > MAX_AUTHOR_BYTES:
        raise Invalid(f"{subject} has {size} bytes; at most {MAX_AUTHOR_BYTES} are allowed.")
    if schema.get("type") != "object":
        raise Invalid(f"{subject} must be that of an object.")
    try:
        expanded = expand_schema(schema, change)
        check_schema(expanded)
    except Invalid as error:
        raise Invalid(f"{subject} {error.detail}.") from error
    return expanded


class _Expansion:
    def __init__(self, root: Keywords, change: Callable[[Keywords], Keywords], allows_recursion: bool) -> None:
        self._root = root
        self._change = change
        self._allows_recursion = allows_recursion
        self._left = MAX_PARTS

    def expand(self, node: object, depth: int, open_references: tuple[str, ...] = ()) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0:
            raise Invalid(f"has more than {MAX_PARTS} parts once its references are expanded")
        if isinstance(node, bool):
            return {} if node else {"not": {}}
        if not isinstance(node, Mapping):
            raise Invalid(f"has {str(node)[:40]!a} in place of a schema")
        if depth > MAX_DEPTH:
            raise Invalid(f"is nested more than {MAX_DEPTH} levels deep")
        fields = cast("Keywords", node)
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in fields:
                raise Invalid(f"uses {key}, which is not supported")
        reference = fields.get("$ref")
        if reference in open_references:
            if not self._allows_recursion:
                raise Invalid(f"has a type that contains itself, {reference[:80]!a}")
            return {}
        own = self._expand_fields(self._change(fields), depth, open_references)
        if reference is None:
            return own
        return {**self.expand(self._find(reference), depth + 1, (*open_references, reference)), **own}

    def _expand_fields(self, fields: Keywords, depth: int, opened: tuple[str, ...]) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, value in cast("Mapping[str, object]", fields).items():
            if key in _DROPPED:
                continue
            if key == "multipleOf" and isinstance(value, int) and abs(value) > sys.float_info.max:
                raise Invalid("has a multipleOf that is too large to divide by")
            if isinstance(value, list) and key in _LISTED_SCHEMAS:
                # Drafts before 2020-12 list the types of the first items in `items`.
                name, listed = "prefixItems" if key == "items" else key, cast("list[object]", value)
                copied[name] = [self.expand(each, depth + 1, opened) for each in listed]
            elif key in _NAMED_SCHEMAS and isinstance(value, Mapping):
                named = cast("Mapping[str, object]", value)
                copied[key] = {name: self.expand(each, depth + 1, opened) for name, each in named.items()}
            elif key in _SCHEMAS and not (key == "additionalProperties" and isinstance(value, bool)):
                copied[key] = self.expand(cast("object", value), depth + 1, opened)
            else:
                copied[key] = value
        return copied

    def _find(self, reference: object) -> object:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Invalid(f"refers to {str(reference)[:80]!a}, outside of itself")
        target: object = self._root
        for part in filter(None, reference.removeprefix("#").split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or name not in target:
                raise Invalid(f"refers to {reference[:80]!a}, which it does not have")
            target = cast("Mapping[str, object]", target)[name]
        return target

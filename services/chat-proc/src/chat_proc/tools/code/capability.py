"""What a run may ask of the gateway, made from the tools that programs are offered, and how a program calls them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from pydantic import BaseModel

from everturn.ports.tool import ToolSpec
from everturn.wire.execution import MIB, ArgumentRule, Capability, ToolGrant

MAX_CALLS: Final = 100
MAX_BYTES: Final = 32 * MIB
ANSWER_ALLOWANCE_S: Final = 5.0
"""What a grant lasts longer than its tool may: the worker ends a slow tool itself, and can say more about it."""
INPUTS_ALLOWANCE_S: Final = 60.0
"""What the files of a run may take before the program's own time begins."""
_TYPES: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


def build_capability(specs: Sequence[ToolSpec], timeout_s: float) -> Capability:
    """A grant for each tool; calls may begin as long as the program may run."""
    return Capability(
        grants=tuple(
            ToolGrant(spec.tool_id, build_rules(spec.params), None, spec.timeout_s + ANSWER_ALLOWANCE_S)
            for spec in specs
        ),
        max_calls=MAX_CALLS,
        max_bytes=MAX_BYTES,
        deadline_s=timeout_s + INPUTS_ALLOWANCE_S if specs else None,
    )


def build_rules(params: type[BaseModel]) -> tuple[ArgumentRule, ...]:
    """The parameters' names in their order, and as much of what they may be as the gateway can check."""
    return tuple(_build_rule(name, schema) for name, schema in _properties(params).items())


def describe_tools(specs: Iterable[ToolSpec]) -> str:
    """Markdown lines: the call of each tool with its parameters, what it gives, and what it is for."""
    return "\n".join(f"- `await {_signature(spec)}` gives {spec.returns}. {spec.summary}" for spec in specs)


def _signature(spec: ToolSpec) -> str:
    required = set(cast("list[str]", spec.params.model_json_schema().get("required", [])))
    parts = [
        f"{name}: {_type_name(schema)}" + ("" if name in required else f" = {schema.get('default')!r}")
        for name, schema in _properties(spec.params).items()
    ]
    return f"{spec.tool_id}({', '.join(parts)})"


def _type_name(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type_name, schema["anyOf"])))
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    return _TYPES.get(str(schema.get("type")), "object")


def _build_rule(name: str, schema: Mapping[str, Any]) -> ArgumentRule:
    kind = schema.get("type")
    return ArgumentRule(
        name,
        one_of=tuple(schema["enum"]) if kind == "string" and "enum" in schema else None,
        max_chars=schema.get("maxLength") if kind == "string" else None,
        max_items=schema.get("maxItems") if kind == "array" else None,
        maximum=schema.get("maximum") if kind in ("integer", "number") else None,
        max_item_chars=schema.get("items", {}).get("maxLength") if kind == "array" else None,
    )


def _properties(params: type[BaseModel]) -> Mapping[str, Mapping[str, Any]]:
    return params.model_json_schema().get("properties", {})

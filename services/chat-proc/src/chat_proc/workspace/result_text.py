"""How workspace tools write their results: one JSON object whose list items stand on lines of their own."""

import json
from collections.abc import Mapping
from typing import cast


def render_result(result: Mapping[str, object]) -> str:
    """The object as text; empty lists and None are left out. A part of it can be read by lines."""
    fields = [f"{json.dumps(key)}: {_render(value)}" for key, value in result.items() if value not in (None, [], ())]
    return "{" + ",\n".join(fields) + "}"


def _render(value: object) -> str:
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return "[\n" + ",\n".join(_dump(item) for item in items) + "]"
    return _dump(value)


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))

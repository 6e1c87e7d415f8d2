"""A long text in short: its size, for JSON its shape, its beginning, and the call that reads the rest."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import cast

SHAPE_DEPTH = 4
SHAPE_ITEMS = 10
MAX_SHAPE_CHARS = 1_500
MAX_SHAPED_CHARS = 2_000_000
"""Longer texts are not parsed for their shape: that would hold up every other turn of the worker."""
MAX_KEY_CHARS = 60

MIN_BASE64_CHARS = 2_048
"""A shorter run may be a key or a hash that the model has to name."""
_BASE64 = re.compile(rf"[A-Za-z0-9+/_-]{{{MIN_BASE64_CHARS},}}={{0,2}}")


def build_preview(text: str, ref: str, cap: int) -> str:
    """The text itself when it has at most `cap` characters, else a preview of at most about `cap` characters.

    The result is as raw as the text: whoever puts it into a prompt makes it inert.
    """
    if len(text) <= cap:
        return text
    shape = try_shape(text)
    begin = text[: max(cap // 4, cap - len(shape or ""))]
    size = f"the first {len(begin)} of {len(text)} characters, {count_lines(text)} lines"
    lines = [begin, f"({size}; {hint_to_read(ref, len(begin))})", *(["shape:", shape] if shape else [])]
    return "\n".join(lines)


def hint_to_read(ref: str, offset: int) -> str:
    """How to read on: the ready item of a `react.read`."""
    item = json.dumps({"path": ref, "offset": offset}, ensure_ascii=False)
    return f"more: react.read items=[{item}]"


def count_lines(text: str) -> int:
    """How many lines a text has; a line break at its end begins no further one."""
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def try_shape(text: str) -> str | None:
    """What a JSON text looks like inside, at most SHAPE_DEPTH levels deep; None when it is no JSON object or list."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > MAX_SHAPED_CHARS:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    lines = "\n".join(_shape_lines(value, "", SHAPE_DEPTH))
    return lines if len(lines) <= MAX_SHAPE_CHARS else lines[:MAX_SHAPE_CHARS] + "..."


def drop_base64(text: str) -> str:
    """The text with every long run of base64 replaced by its size: a model can't read it, and it costs most of all."""
    return _BASE64.sub(lambda found: f"<{len(found[0])} characters of base64>", text)


def _shape_lines(value: object, indent: str, depth: int) -> Iterator[str]:
    match value:
        case dict():
            fields = cast("dict[str, object]", value)
            yield f"{indent}object of {len(fields)} keys"
            if depth > 1:
                for key, item in islice(fields.items(), SHAPE_ITEMS):
                    yield from _named_lines(_short_key(key), item, indent, depth)
                yield from _left_line(len(fields), indent)
        case list():
            items = cast("list[object]", value)
            yield f"{indent}list of {len(items)}"
            if depth > 1 and items:
                yield from _named_lines("[0]", items[0], indent, depth)
        case str():
            yield f"{indent}string of {len(value)} characters"
        case None:
            yield f"{indent}null"
        case bool():
            yield f"{indent}boolean"
        case _:
            yield f"{indent}number"


def _named_lines(name: str, item: object, indent: str, depth: int) -> Iterator[str]:
    first, *rest = _shape_lines(item, indent + "  ", depth - 1)
    yield f"{indent}  {name}: {first.strip()}"
    yield from rest


def _left_line(total: int, indent: str) -> Iterator[str]:
    if total > SHAPE_ITEMS:
        yield f"{indent}  and {total - SHAPE_ITEMS} more keys"


def _short_key(key: str) -> str:
    return json.dumps(key if len(key) <= MAX_KEY_CHARS else key[:MAX_KEY_CHARS] + "...", ensure_ascii=False)

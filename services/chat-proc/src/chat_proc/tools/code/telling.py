"""Calls of programs in few words: arguments and values as a block holds them, whatever a program put into them."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from chat_proc.sandbox.results import clean_text
from everturn.wire.execution import GATEWAY_FRAME_BYTES, ToolReply
from everturn.wire.framing import FrameError, encode_frame
from everturn.wire.records import build_message

MAX_RESULT_CHARS: Final = 4_000
"""Of what a call gave, on the timeline. The program has all of it, and prints or keeps what matters."""
MAX_MESSAGE_CHARS: Final = 2_000
_MAX_STRING_CHARS: Final = 500
_MAX_ITEMS: Final = 50
_MAX_DEPTH: Final = 6
_ELLIPSIS: Final = "…"


def bound_arguments(arguments: Mapping[str, object]) -> dict[str, Any]:
    """The arguments as JSON that a block may hold: long texts, lists and depths cut, bytes counted."""
    return cast("dict[str, Any]", _bound(arguments, _MAX_DEPTH))


def describe_value(value: object) -> str:
    """What a call gave, as text of at most MAX_RESULT_CHARS."""
    text = value if isinstance(value, str) else json.dumps(_bound(value, _MAX_DEPTH), ensure_ascii=False)
    clean = clean_text(text[: MAX_RESULT_CHARS + 1])
    return clean if len(text) <= MAX_RESULT_CHARS else clean[:MAX_RESULT_CHARS] + _ELLIPSIS


def fit_reply(reply: ToolReply) -> ToolReply:
    """The reply, or why it can't be sent: code too_large."""
    if (size := _count(reply.value, GATEWAY_FRAME_BYTES)) > GATEWAY_FRAME_BYTES:
        return _unsendable(reply, f"it has at least {size} characters, {GATEWAY_FRAME_BYTES} bytes are allowed")
    try:
        encode_frame(build_message(reply), GATEWAY_FRAME_BYTES)
    except FrameError as error:
        return _unsendable(reply, str(error))
    return reply


def _unsendable(reply: ToolReply, why: str) -> ToolReply:
    return ToolReply(reply.id, False, None, "too_large", f"the result can't be sent: {why}")


def _count(value: object, enough: int) -> int:
    """Characters and bytes in a value, counted no further than to more than `enough`."""
    total, waiting = 0, [value]
    while waiting and total <= enough:
        part = waiting.pop()
        if isinstance(part, str | bytes):
            total += len(part)
        else:
            held = _parts_of(part)
            waiting += held
            total += len(held) + 1
    return total


def _parts_of(value: object) -> list[object]:
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        return [*fields.keys(), *fields.values()]
    return list(cast("list[object]", value)) if isinstance(value, list | tuple) else []


def _bound(value: object, depth: int) -> object:
    match value:
        case str():
            return clean_text(value if len(value) <= _MAX_STRING_CHARS else value[:_MAX_STRING_CHARS] + _ELLIPSIS)
        case bytes():
            return f"({len(value)} bytes)"
        case bool() | int() | float() | None:
            return value
        case _ if depth == 0:
            return _ELLIPSIS
        case Mapping():
            fields = list(cast("Mapping[object, object]", value).items())[:_MAX_ITEMS]
            return {clean_text(str(key))[:_MAX_STRING_CHARS]: _bound(item, depth - 1) for key, item in fields}
        case list() | tuple():
            return [_bound(item, depth - 1) for item in cast("list[object]", value)[:_MAX_ITEMS]]
        case _:
            return clean_text(str(value)[:_MAX_STRING_CHARS])

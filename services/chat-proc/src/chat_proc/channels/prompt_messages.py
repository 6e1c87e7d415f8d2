"""Turns the messages a bundle passes into the request of one model call."""

from collections.abc import Iterable, Mapping
from typing import cast, get_args

from everturn.errors import Invalid
from everturn.model.llm.prompts import ModelRequest, PromptMessage, Role, TextPart

MessageLike = PromptMessage | Mapping[str, object]


class MalformedMessage(Invalid):
    """A message is neither a PromptMessage nor a mapping with a role and a text."""


def build_request(messages: Iterable[MessageLike], *, max_output_tokens: int) -> ModelRequest:
    """The request; mappings are `{"role": ..., "content": text or [{"type": "text", "text": ...}]}`."""
    return ModelRequest(tuple(map(_read_message, messages)), max_output_tokens)


def _read_message(message: MessageLike) -> PromptMessage:
    if isinstance(message, PromptMessage):
        return message
    return PromptMessage(_read_role(message.get("role")), _read_parts(message.get("content")))


def _read_role(written: object) -> Role:
    for role in get_args(Role):
        if written == role:
            return role
    raise MalformedMessage(f"role {str(written)[:60]!r}")


def _read_parts(content: object) -> tuple[TextPart, ...]:
    items = cast("list[object]", content) if isinstance(content, list) else [content]
    return tuple(TextPart(_read_text(item)) for item in items)


def _read_text(item: object) -> str:
    if isinstance(item, Mapping):
        item = cast("Mapping[str, object]", item).get("text")
    if isinstance(item, str):
        return item
    raise MalformedMessage("content without text")

"""What a server that speaks OpenAI's API accepts in a request. No server states it, so a model begins with the most
common form and learns from refusals; docs/models.md says which servers refuse what."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from everturn.models.port import PromptMessage, TextPart, ToolCallPart, ToolResultPart

REFUSED_STATUS = frozenset({400, 422, 500})
"""With these a server refuses a form; llama.cpp sends 500 for what a chat template refuses."""

Feature = Literal[
    "max_tokens", "stream_options", "text_beside_calls", "parallel_calls", "user_after_tool", "system_role"
]
"""A part of the most common form.

`max_tokens`: the name of the limit, otherwise `max_completion_tokens`. `stream_options`: usage can be asked for.
`text_beside_calls`: an assistant message can have both. `parallel_calls`: it can have several calls; otherwise each
call is a message, followed by its result. `user_after_tool`: a user message can follow a result; otherwise an assistant
message stands between them. `system_role`: there are system messages; otherwise their text begins the user message.
"""

_REFUSALS: Mapping[Feature, re.Pattern[str]] = {
    "max_tokens": re.compile(r"max_completion_tokens"),
    "stream_options": re.compile(r"stream_options"),
    "text_beside_calls": re.compile(r"content or tool_calls, but not both"),
    "parallel_calls": re.compile(r"single tool-calls at once"),
    "user_after_tool": re.compile(r"role\W+user\W+after role\W+tool|roles must alternate"),
    # Templates without a system role count its message as one of the roles that must alternate.
    "system_role": re.compile(r"system role|roles must alternate"),
}
"""The words, in lower case, with which servers and chat templates refuse each feature."""
_BRIDGE = PromptMessage("assistant", (TextPart("I have read the results."),))


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of the requests to one server."""

    refused: frozenset[Feature] = frozenset()

    def accepts(self, feature: Feature) -> bool:
        """Whether a feature was not refused so far."""
        return feature not in self.refused

    def adapt(self, refusal: str) -> "Dialect | None":
        """The form to try after a refusal with this text; None if another form would not help."""
        text = refusal.lower()
        for feature, words in _REFUSALS.items():
            if self.accepts(feature) and words.search(text):
                return replace(self, refused=self.refused | {feature})
        return None

    def arrange(self, messages: Sequence[PromptMessage]) -> Sequence[PromptMessage]:
        """The messages in roles and an order that the server accepts."""
        if not self.accepts("system_role"):
            messages = list(_move_system_text(messages))
        if not self.accepts("text_beside_calls"):
            messages = [_drop_text_beside_calls(message) for message in messages]
        if not self.accepts("parallel_calls"):
            messages = list(_part_calls(messages))
        if not self.accepts("user_after_tool"):
            messages = list(_separate_results(messages))
        return messages


def _move_system_text(messages: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    system = tuple(part for message in messages if message.role == "system" for part in message.parts)
    for message in messages:
        if message.role == "user":
            yield replace(message, parts=(*system, *message.parts))
            system = ()
        elif message.role != "system":
            yield message


def _drop_text_beside_calls(message: PromptMessage) -> PromptMessage:
    calls = tuple(part for part in message.parts if isinstance(part, ToolCallPart))
    return replace(message, parts=calls) if calls else message


def _part_calls(messages: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    """Each result stands after its call."""
    results = {
        part.call_id: message for message in messages for part in message.parts if isinstance(part, ToolResultPart)
    }
    for message in messages:
        if message.role == "tool":
            continue
        calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
        if not calls:
            yield message
        texts = tuple(part for part in message.parts if isinstance(part, TextPart))
        for place, call in enumerate(calls):
            yield replace(message, parts=(call,) if place else (*texts, call))
            if call.call_id in results:
                yield results[call.call_id]


def _separate_results(messages: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    before = None
    for message in messages:
        if message.role == "user" and before == "tool":
            yield _BRIDGE
        yield message
        before = message.role

"""What a server that speaks OpenAI's API accepts in a request. No server states it, so a model begins with the most
common form and learns from refusals; docs/models.md says which servers refuse what."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from everturn.models.port import PromptMessage, TextPart

REFUSED_STATUS = frozenset({400, 422, 500})
"""With these a server refuses a form; llama.cpp sends 500 for what a chat template refuses."""

_USER_AFTER_TOOL = re.compile(r"role\W+user\W+after role\W+tool|roles must alternate")
_BRIDGE = PromptMessage("assistant", (TextPart("I have read the results."),))


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of the requests to one server."""

    max_completion_tokens: bool = False
    """Whether the limit of a reply is `max_completion_tokens`, because `max_tokens` is refused."""
    stream_options: bool = True
    """Whether usage can be asked for."""
    user_after_tool: bool = True
    """Whether a user message can follow the result of a call; otherwise an assistant message stands between them."""
    system_role: bool = True
    """Whether there are system messages; otherwise their text begins the user message."""

    def adapt(self, refusal: str) -> "Dialect | None":
        """The form to try after a refusal with this text; None if another form would not help."""
        text = refusal.lower()
        if self.stream_options and "stream_options" in text:
            return replace(self, stream_options=False)
        if not self.max_completion_tokens and "max_completion_tokens" in text:
            return replace(self, max_completion_tokens=True)
        if self.user_after_tool and _USER_AFTER_TOOL.search(text):
            return replace(self, user_after_tool=False)
        # Templates without a system role count its message as one of the roles that must alternate.
        if self.system_role and ("system role" in text or "roles must alternate" in text):
            return replace(self, system_role=False)
        return None

    def arrange(self, messages: Sequence[PromptMessage]) -> Sequence[PromptMessage]:
        """The messages in roles and an order that the server accepts."""
        if not self.system_role:
            messages = list(_move_system_text(messages))
        if not self.user_after_tool:
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


def _separate_results(messages: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    before = None
    for message in messages:
        if message.role == "user" and before == "tool":
            yield _BRIDGE
        yield message
        before = message.role

"""What a server that speaks OpenAI's API accepts in a request. No server states it, so a model begins with the most
common form and learns from refusals; docs/models.md says which servers refuse what."""

import re
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import structlog

from chat_proc.models.replies import is_too_long
from everturn.models.port import ModelTraits, PromptMessage, TextPart, ToolCallPart, ToolResultPart

_log = structlog.get_logger(__name__)

MAX_FORMS = 10
"""Forms of one request that are tried: more than there are features, so that it bounds only the limits."""

Feature = Literal[
    "max_tokens", "stream_options", "stream", "text_beside_calls", "parallel_calls", "user_after_tool", "system_role"
]
"""A part of the most common form.

`max_tokens`: the name of the limit, otherwise `max_completion_tokens`. `stream_options`: usage can be asked for.
`stream`: the reply can be a stream, otherwise it comes as a whole.
`text_beside_calls`: an assistant message can have both. `parallel_calls`: it can have several calls; otherwise each
call is a message, followed by its result. `user_after_tool`: a user message can follow a result; otherwise an assistant
message stands between them. `system_role`: there are system messages; otherwise their text begins the user message.
"""

_REFUSALS: Mapping[Feature, re.Pattern[str]] = {
    "max_tokens": re.compile(r"max_completion_tokens"),
    "stream_options": re.compile(r"stream_options"),
    "stream": re.compile(
        r"verified to stream|tools with stream|unsupported for streaming"
        r"|\bstream(?:ing)?\b[^.]{0,40}not support|n[o']t support[^.]{0,40}\bstream(?:ing)?\b"
    ),
    "text_beside_calls": re.compile(r"content or tool_calls, but not both"),
    "parallel_calls": re.compile(r"single tool-calls at once"),
    "user_after_tool": re.compile(r"role\W+user\W+after role\W+tool|roles must alternate"),
    # Templates without a system role count its message as one of the roles that must alternate.
    "system_role": re.compile(r"system role|roles must alternate|developer instruction"),
}
"""The words, in lower case, with which servers and chat templates refuse each feature."""
_REFUSED_STATUS = frozenset({400, 422, 500})
"""With these a server refuses a form; llama.cpp sends 500 for what a chat template refuses."""
_LIMIT_NAME = re.compile(r"max_(?:completion_|output_|new_)?tokens")
_LIMIT = re.compile(r"(?<![\w.-])(?!2013\))[1-9]\d{3,8}+(?![\w-]|\.\d)")
"""A number that can be the limit of a model. A smaller one can be the status, a date in a name is part of a word, and
MiniMax ends its words about parameters with its code `(2013)`."""
_BRIDGE = PromptMessage("assistant", (TextPart("I have read the results."),))


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of the requests to one server, and the most tokens that a reply of its model may have, if known."""

    refused: frozenset[Feature] = frozenset()
    max_output_tokens: int | None = None

    def accepts(self, feature: Feature) -> bool:
        """Whether a feature was not refused so far."""
        return feature not in self.refused

    def limit_reply(self, tokens: int) -> int:
        """The tokens of a reply to ask for."""
        return tokens if self.max_output_tokens is None else min(tokens, self.max_output_tokens)

    def join(self, other: "Dialect") -> "Dialect":
        """What both know."""
        limits = [form.max_output_tokens for form in (self, other) if form.max_output_tokens is not None]
        return Dialect(self.refused | other.refused, min(limits, default=None))

    def adapt(self, status: int, refusal: str, tokens: int) -> "Dialect | None":
        """The form to try after a refusal with this text, for a reply of `tokens`; None if another form would not
        help."""
        if status not in _REFUSED_STATUS or is_too_long(status, None, refusal):
            return None
        text = refusal.lower()
        if _LIMIT_NAME.search(text):
            limits = [limit for limit in map(int, _LIMIT.findall(text)) if limit < self.limit_reply(tokens)]
            if limits:
                return replace(self, max_output_tokens=max(limits))
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


ONE_FORM = Dialect(frozenset(_REFUSALS))
"""Of a protocol whose servers differ in their limits only."""

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


class DialectLearner:
    """Asks a server in the form that it accepts, and remembers what it refuses. Streams are remembered by kind of
    request: some servers refuse them only with tools, or only with a form of the reply."""

    def __init__(self, traits: ModelTraits, dialect: Dialect) -> None:
        self._traits = traits
        self._dialect = dialect
        self._unstreamed_kinds: set[Hashable] = set()

    async def ask(
        self,
        tokens: int,
        ask: Callable[[Dialect, int], Awaitable[T]],
        refused: type[E],
        read: Callable[[E], tuple[int, str]],
        kind: Hashable = None,
    ) -> T:
        """What `ask` returns for a form and a limit of the reply, which is `tokens` or less.

        `read` returns the status and the words of a refusal. Each can teach one difference. What was learned is kept
        once it helped, beside what other calls have learned meanwhile. Raises what `ask` raises.
        """
        dialect, tried = self._find(kind), 0
        while True:
            tried += 1
            try:
                answer = await ask(dialect, dialect.limit_reply(tokens))
            except refused as refusal:
                learned = None if tried == MAX_FORMS else dialect.adapt(*read(refusal), tokens)
                if learned is None:
                    raise
                dialect = learned
            else:
                self._remember(dialect, kind)
                return answer

    def _find(self, kind: Hashable) -> Dialect:
        unstreamed: frozenset[Feature] = frozenset({"stream"} if kind in self._unstreamed_kinds else ())
        return self._dialect.join(Dialect(unstreamed))

    def _remember(self, dialect: Dialect, kind: Hashable) -> None:
        before = self._find(kind)
        if not dialect.accepts("stream"):
            self._unstreamed_kinds.add(kind)
        self._dialect = self._dialect.join(replace(dialect, refused=dialect.refused - {"stream"}))
        after = self._find(kind)
        if after != before:
            _log.info(
                "Changed the form of requests",
                model=self._traits.ledger_name,
                refused=sorted(after.refused - before.refused),
                max_output_tokens=after.max_output_tokens,
            )


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

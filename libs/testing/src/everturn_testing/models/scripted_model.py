"""A LanguageModel for tests: it replies with scripted steps, and stores the requests it received."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import assert_never

from everturn.models.port import (
    FinishReason,
    ModelPiece,
    ModelRequest,
    ModelTraits,
    ModelUsage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    ToolCallDelta,
)

SCRIPTED_TRAITS = ModelTraits(name="scripted", context_tokens=200_000, images=True, documents=True)
SCRIPTED_USAGE = ModelUsage(input_tokens=100, output_tokens=20)


@dataclass(frozen=True, slots=True)
class Say:
    """Text of the reply; it arrives in chunks, an empty text in an empty one."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning that arrives separately from the reply, in one piece."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in the provider's own form; its arguments, a JSON object, arrive in chunks."""

    name: str
    arguments: str = "{}"
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits for an event, or for seconds. With an event a test decides when the reply continues."""

    until: asyncio.Event | float


@dataclass(frozen=True, slots=True)
class Fail:
    """Raises this error; nothing follows."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Finish:
    """How the reply ends. Without it a reply ends with `stop` and SCRIPTED_USAGE."""

    reason: FinishReason = "stop"
    usage: ModelUsage = SCRIPTED_USAGE


@dataclass(frozen=True, slots=True)
class Cut:
    """The stream ends here without a finish, as a broken model would do."""


Step = Say | Think | Call | Pause | Fail | Finish | Cut
Script = str | Sequence[Step]


class ScriptExhausted(AssertionError):
    """The model was called more often than its test expected."""


class ScriptedModel:
    """Plays one script a call, in order. A script is the text of a reply, or its steps."""

    def __init__(
        self,
        scripts: Iterable[Script] = (),
        *,
        chunk_chars: int = 16,
        chunk_pause_s: float = 0.0,
        traits: ModelTraits = SCRIPTED_TRAITS,
    ) -> None:
        self._scripts = list(scripts)
        self._chunk_chars = chunk_chars
        self._chunk_pause_s = chunk_pause_s
        self._traits = traits
        self.requests: list[ModelRequest] = []
        """Every request so far; the call count is its length."""
        self.unfinished = 0
        """Calls that ended without a finish: closed, cancelled, cut or failed."""

    @property
    def traits(self) -> ModelTraits:
        return self._traits

    def add(self, *scripts: Script) -> None:
        """Append scripts for later calls."""
        self._scripts.extend(scripts)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Play the next script; raises ScriptExhausted when there is none."""
        names = {tool.name for tool in request.tools}
        assert not request.force_tool or request.force_tool in names, f"{request.force_tool} is not declared"
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._scripts):
            raise ScriptExhausted(f"call {number + 1} of a model with {len(self._scripts)} scripts")
        self.unfinished += 1
        async with aclosing(self._play(self._scripts[number])) as pieces:
            async for piece in pieces:
                self.unfinished -= isinstance(piece, ReplyFinished)
                yield piece

    async def _play(self, script: Script) -> AsyncGenerator[ModelPiece, None]:
        calls = 0
        for step in (Say(script),) if isinstance(script, str) else script:
            match step:
                case Say(text):
                    for start in range(0, max(1, len(text)), self._chunk_chars):
                        await asyncio.sleep(self._chunk_pause_s)
                        yield TextDelta(text[start : start + self._chunk_chars])
                case Think(text):
                    yield ReasoningDelta(text)
                case Call(name, arguments, call_id):
                    yield ToolCallDelta(calls, "", name, call_id)
                    for start in range(0, len(arguments), self._chunk_chars):
                        await asyncio.sleep(self._chunk_pause_s)
                        yield ToolCallDelta(calls, arguments[start : start + self._chunk_chars])
                    calls += 1
                case Pause(until):
                    await (until.wait() if isinstance(until, asyncio.Event) else asyncio.sleep(until))
                case Fail(error):
                    raise error
                case Finish(reason, usage):
                    yield ReplyFinished(reason, usage)
                    return
                case Cut():
                    return
                case _:
                    assert_never(step)
        yield ReplyFinished("stop", SCRIPTED_USAGE)

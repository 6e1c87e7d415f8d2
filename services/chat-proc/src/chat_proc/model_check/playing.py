"""Runs the tasks of a check against a model, one after another, and measures its replies."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from chat_proc.agent.drafting import check_decision
from chat_proc.agent.prompt.system import build_codec
from chat_proc.agent.prompting import AnnounceState, Budget, ContextCaps, arrange_request, build_announce
from chat_proc.channels.codec import Codec
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.native_stream import NativeStream
from chat_proc.channels.pieces import AnswerText, AnswerWithdrawn, DecisionPiece
from chat_proc.model_check.tasks import CATALOG, CODE, NOW, ROUNDS, TASKS, TURN, ReadReply, Task, Wrong
from chat_proc.models.calls import CallTracker
from chat_proc.models.roles import DECISION, SUMMARY
from chat_proc.models.structured import Level, StructuredCallFailed, StructuredLimits, structured_call
from chat_proc.timeline.view import PromptRenderer
from everturn.execution.messages import RunLimits
from everturn.models.port import (
    CodecName,
    FailureKind,
    FinishReason,
    LanguageModel,
    ModelFailed,
    ModelRequest,
    ModelRetry,
    ModelTraits,
    ModelUsage,
    PromptMessage,
    ReplyFinished,
    TextDelta,
    TextPart,
    ToolCallDelta,
    encode_media,
)
from everturn.timeline.blocks import GENESIS_HASH, chain_blocks

CODECS: Final[tuple[CodecName, ...]] = ("channels", "native", "json")
TASK_LIMIT_S: Final = 60.0
MAX_TIMEOUTS: Final = 5
"""Tasks in a row without a complete reply, after which the check ends: all of them would take half an hour."""
STRUCTURED: Final = 10
"""The number of the task with the structured call."""
STRUCTURED_NAME: Final = "structured call"
LASTING: Final[frozenset[FailureKind]] = frozenset({"unauthorized", "no_credit", "not_found", "connection"})
"""These failures repeat themselves, unless a part of the reply has arrived."""
SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_LIMITS: Final = DecisionLimits(code_tools=frozenset({CODE.tool_id}))

Status = Literal["ok", "wrong", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a task ended. `reason` says why it is not ok, `failure` is the kind of a provider's failure, and `is_lasting`
    means that every other task would fail, too."""

    status: Status
    reason: str = ""
    failure: FailureKind | None = None
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a model did one task. `codec` is None for a task that has none, and whose outcome counts for all of them.

    `first_word_s` is the time to the first word of the answer that a person would see.
    `level` is that of a structured call.
    """

    number: int
    name: str
    required: bool
    codec: CodecName | None
    judgement: Judgement
    calls: int = 0
    usage: ModelUsage = field(default_factory=ModelUsage)
    took_s: float = 0.0
    first_token_s: float | None = None
    first_word_s: float | None = None
    finish: FinishReason | None = None
    level: Level | Literal["default"] | None = None


def _ignore_start(_codec: CodecName | None, _number: int, _name: str) -> None:
    """For callers that show no progress."""


async def play_tasks(
    model: LanguageModel,
    max_output_tokens: int,
    *,
    address: str = "",
    on_start: Callable[[CodecName | None, int, str], None] = _ignore_start,
    limit_s: float = TASK_LIMIT_S,
) -> AsyncGenerator[Outcome, None]:
    """Run all tasks with each codec, then the structured call. A failure that would be repeated ends the check, and so
    do MAX_TIMEOUTS in a row. `max_output_tokens` is the limit of one reply, as in a turn; `address` is that of the
    model's server; `on_start` is called before each task."""
    timeouts = 0
    for name in CODECS:
        codec = build_codec(name, CATALOG.specs)
        for task in TASKS:
            on_start(name, task.number, task.name)
            outcome = await _play(model, codec, task, max_output_tokens, address, limit_s)
            timeouts = timeouts + 1 if outcome.judgement.failure == "timeout" else 0
            if timeouts == MAX_TIMEOUTS:
                reason = f"{outcome.judgement.reason} That is the {MAX_TIMEOUTS}th time in a row."
                outcome = replace(outcome, judgement=replace(outcome.judgement, reason=reason, is_lasting=True))
            yield outcome
            if outcome.judgement.is_lasting:
                return
    on_start(None, STRUCTURED, STRUCTURED_NAME)
    yield await _play_structured(model, max_output_tokens, address, limit_s)


async def _play(
    model: LanguageModel, codec: Codec, task: Task, max_output_tokens: int, address: str, limit_s: float
) -> Outcome:
    if task.image and not model.traits.images:
        judgement = Judgement("skipped", "the model's card does not say `images = true`")
        return Outcome(task.number, task.name, task.required, codec.name, judgement)
    reading = _Reading(codec, CallTracker(model.traits, DECISION), began_s=time.monotonic())

    async def judge() -> None:
        reply = await reading.read(model, build_request(codec, task, model.traits, max_output_tokens))
        task.judge(reply, codec.name)

    judgement = await _try(judge, address, limit_s)
    if judgement.failure == "timeout" and reading.last_retry:
        reason = f"{judgement.reason} Everturn was retrying after this failure: {reading.last_retry}."
        judgement = replace(judgement, reason=reason)
    return Outcome(
        task.number,
        task.name,
        task.required,
        codec.name,
        judgement,
        reading.tracker.count,
        reading.tracker.sum_usage(),
        time.monotonic() - reading.began_s,
        reading.first_token_s,
        reading.first_word_s,
        reading.finish,
    )


async def _play_structured(model: LanguageModel, max_output_tokens: int, address: str, limit_s: float) -> Outcome:
    tracker, began_s = CallTracker(model.traits, SUMMARY), time.monotonic()
    levels: list[Level | Literal["default"]] = []

    async def judge() -> None:
        result = await structured_call(
            model,
            (
                PromptMessage("system", (TextPart("You extract facts from texts."),)),
                PromptMessage("user", (TextPart("Who is this about? 'Marta Lind turned 34 last week.'"),)),
            ),
            SCHEMA,
            parse_fn=_check_person,
            limits=StructuredLimits(limit_s, model.traits.limit_reply(max_output_tokens)),
            tracker=tracker,
        )
        levels.append(result.level)

    judgement = await _try(judge, address, limit_s)
    return Outcome(
        STRUCTURED,
        STRUCTURED_NAME,
        required=False,
        codec=None,
        judgement=judgement,
        calls=tracker.count,
        usage=tracker.sum_usage(),
        took_s=time.monotonic() - began_s,
        level=levels[0] if levels else None,
    )


def _check_person(fields: Mapping[str, Any]) -> None:
    if "Marta" not in fields["name"] or fields["age"] != 34:
        raise ValueError("the facts are not those of the text")


async def _try(judge: Callable[[], Awaitable[None]], address: str, limit_s: float) -> Judgement:
    try:
        async with asyncio.timeout(limit_s):
            await judge()
    except Wrong as wrong:
        return Judgement("wrong", str(wrong))
    except TimeoutError:
        return Judgement("error", f"No complete reply arrived within {limit_s:g} s.", "timeout")
    except ModelFailed as failure:
        return _explain(failure, address)
    except StructuredCallFailed as failed:
        match failed.__cause__:
            case ModelFailed() as failure:
                return _explain(failure, address)
            case TimeoutError():
                return Judgement("error", failed.detail, "timeout")
            case StructuredCallFailed(problem=problem) if problem:
                return Judgement("wrong", f"{failed.detail} The last: {problem}.")
            case _:
                return Judgement("wrong", failed.detail)
    return Judgement("ok")


def _explain(failure: ModelFailed, address: str) -> Judgement:
    if failure.kind == "connection":
        more = f" Check that a server answers at {address}." if address and not failure.partial else ""
    else:
        more = f" The server said: {failure.provider_text}" if failure.provider_text else ""
    reason = f"{failure.kind}: {failure.detail}{more}"
    return Judgement("error", reason, failure.kind, is_lasting=failure.kind in LASTING and not failure.partial)


def build_request(codec: Codec, task: Task, traits: ModelTraits, max_output_tokens: int) -> ModelRequest:
    """The request of the task's round, as a worker would build it."""
    blocks = chain_blocks(task.draft_turn(codec.name), next_seq=1, last_hash=GENESIS_HASH)
    renderer = PromptRenderer(system_prompt=codec.system_prompt, traits=traits)
    renderer.take(blocks)
    picture = encode_media(task.image)
    media = {picture.sha256: picture} if task.image else {}
    announce = build_announce(
        AnnounceState(
            turn_id=TURN,
            budget=Budget(
                round=blocks[-1].round + 1,
                round_limit=ROUNDS,
                elapsed_s=5.0,
                wall_time_s=1_800.0,
                tokens=0,
                token_limit=2_000_000,
                cost_usd=0.0,
                cost_limit_usd=10.0,
            ),
            code="programs run in a sandbox",
            now=NOW,
            caps=ContextCaps(2_000, traits.context_tokens),
            run=RunLimits(),
        )
    )
    messages, _ = arrange_request(renderer, codec, ("", announce), media)
    return ModelRequest(messages, traits.limit_reply(max_output_tokens), codec.tools)


class _Reading:
    """One reply being read with its codec, and the times of its parts."""

    def __init__(self, codec: Codec, tracker: CallTracker, *, began_s: float) -> None:
        self._reader = codec.open_reader(_LIMITS)
        self._called_natively = False
        self._shown: list[str] = []
        self.tracker = tracker
        self.began_s = began_s
        self.first_token_s: float | None = None
        self.first_word_s: float | None = None
        self.finish: FinishReason | None = None
        self.last_retry = ""

    async def read(self, model: LanguageModel, request: ModelRequest) -> ReadReply:
        """Raises ModelFailed."""
        with self.tracker.open_call(request) as call:
            async with aclosing(model.generate(request)) as pieces:
                async for piece in pieces:
                    call.note(piece)
                    if not isinstance(piece, ModelRetry | ReplyFinished) and self.first_token_s is None:
                        self.first_token_s = time.monotonic() - self.began_s
                    match piece:
                        case TextDelta(text):
                            self._show(self._reader.feed(text))
                        case ToolCallDelta():
                            self._take_call(piece)
                        case ModelRetry(reason=reason):
                            self.last_retry = reason
                        case ReplyFinished(reason=reason):
                            self.finish = reason
                        case _:
                            """Reasoning is not judged."""
                    if self._reader.is_over:
                        break
        reason = self.finish or "stop"
        pieces_left, decision = self._reader.finish(reason)
        self._show(pieces_left)
        verdict = check_decision(decision, "".join(self._shown), CATALOG)
        return ReadReply(verdict, reason, self._called_natively)

    def _take_call(self, delta: ToolCallDelta) -> None:
        if isinstance(self._reader, NativeStream):
            self._show(self._reader.feed_call(delta))
        else:
            self._called_natively = True

    def _show(self, pieces: list[DecisionPiece]) -> None:
        for piece in pieces:
            match piece:
                case AnswerText(text=text):
                    self._shown.append(text)
                    if self.first_word_s is None and text.strip():
                        self.first_word_s = time.monotonic() - self.began_s
                case AnswerWithdrawn():
                    self._shown.clear()
                case _:
                    """Only the answer is timed."""

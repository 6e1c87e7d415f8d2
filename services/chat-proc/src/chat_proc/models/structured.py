"""Structured calls: asks any model for a JSON object that matches a schema.

It tries, in this order, what the model supports:

1. `native`: one forced call of a tool whose parameters are the schema. A text in its place is read, too.
2. `json`: a reply that the provider keeps to the schema, or at least to JSON; one more if that can't be used.
3. `plain`: any reply, which is searched for an object; one retry if it can't be used.

So it makes at most five model calls, four without tool calls, and two with plain text alone. The request after a reply
that could not be used says why.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, Final, Generic, Literal, TypeVar

import structlog
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from referencing import Registry

from chat_proc.models.calls import CallTracker
from chat_proc.models.json_values import extract_json
from chat_proc.models.think_tags import drop_reasoning
from everturn.core.cancellation import keep_cancellation
from everturn.core.errors import EverturnError
from everturn.models.port import (
    Ability,
    FinishReason,
    JsonReply,
    LanguageModel,
    ModelFailed,
    ModelRequest,
    ModelUsage,
    PromptMessage,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolDeclaration,
)

_log = structlog.get_logger(__name__)

TOOL_NAME = "submit_reply"
MAX_OBJECTS = 20
"""How many objects of one reply are compared with the schema."""
MAX_PROBLEMS = 3
MAX_PROBLEM_CHARS = 300
MAX_SHOWN_REPLY_CHARS = 8_000
"""How much of a reply that could not be used the model sees again."""
MAX_READ_ON_LOOP_CHARS = 1_000
"""A longer reply is read in a thread: comparing it with a schema takes up to 6 ms per 1,000 characters."""

T = TypeVar("T")
Level = Literal["native", "json", "plain"]
_MAX_CALLS: Mapping[Level, int] = {"native": 1, "json": 2, "plain": 2}


class _NoDefault(Enum):
    NO_DEFAULT = 0


NO_DEFAULT: Final = _NoDefault.NO_DEFAULT


@dataclass(frozen=True, slots=True)
class StructuredLimits:
    """Limits of one structured call. `limit_s` is for all its model calls together, the others are for each."""

    limit_s: float = 60.0
    max_output_tokens: int = 4_096
    max_reply_chars: int = 32_000


_DEFAULT_LIMITS = StructuredLimits()


@dataclass(frozen=True, slots=True)
class StructuredResult(Generic[T]):
    """`raw` is the object that `value` was made from; None for the default value.

    `calls` counts the model calls, failed ones included; `usage` is their sum.
    """

    value: T
    raw: Mapping[str, Any] | None
    level: Level | Literal["default"]
    usage: ModelUsage
    calls: int


class StructuredCallFailed(EverturnError):
    """The model gave no usable structured reply."""

    problem = ""
    """Why the last reply could not be used. It can quote the reply, so it is not for the log."""


async def structured_call(
    model: LanguageModel,
    messages: Sequence[PromptMessage],
    schema: Mapping[str, object],
    *,
    parse_fn: Callable[[Mapping[str, Any]], T],
    regex_fallback: Callable[[str], Mapping[str, Any] | None] | None = None,
    default_value: T | Literal[_NoDefault.NO_DEFAULT] = NO_DEFAULT,
    limits: StructuredLimits = _DEFAULT_LIMITS,
    tracker: CallTracker,
) -> StructuredResult[T]:
    """Ask `model` for an object that matches `schema`, a JSON schema of the type `object`.

    `parse_fn` makes the value of the object. It rejects an object by a ValueError, whose text the model sees.
    `regex_fallback` may find the fields of an object in a plain reply that has no matching one.

    Raises StructuredCallFailed if there is no `default_value`. What the calls cost is in `tracker`, a new one, in any
    case. If a provider rejects a request as invalid, the next form is tried; other failures and refusals end the call.
    """
    call = _StructuredCall(model, tuple(messages), schema, parse_fn, regex_fallback, limits, tracker)
    with keep_cancellation():
        try:
            return await call.run()
        except (ModelFailed, TimeoutError, StructuredCallFailed) as failure:
            why = "It took too long." if isinstance(failure, TimeoutError) else failure.detail
            if default_value is NO_DEFAULT:
                raise StructuredCallFailed(why) from failure
            _log.warning("Used the default of a structured call", model=model.traits.ledger_name, why=why)
            return StructuredResult(default_value, None, "default", tracker.sum_usage(), tracker.count)


@dataclass(frozen=True, slots=True)
class _Reply:
    """The arguments of the first tool call of a reply, otherwise its text. `reason` is None if it was not read to its
    end."""

    text: str
    reason: FinishReason | None


@dataclass(frozen=True, slots=True)
class _Rejected:
    """A reply that could not be used, and why. `has_object` means that its form was right, but not its content."""

    text: str
    problem: str
    has_object: bool


class _StructuredCall(Generic[T]):
    """One structured call. Its methods raise ModelFailed, TimeoutError and StructuredCallFailed."""

    def __init__(
        self,
        model: LanguageModel,
        messages: tuple[PromptMessage, ...],
        schema: Mapping[str, object],
        parse: Callable[[Mapping[str, Any]], T],
        find_fields: Callable[[str], Mapping[str, Any] | None] | None,
        limits: StructuredLimits,
        tracker: CallTracker,
    ) -> None:
        self._model = model
        self._messages = messages
        self._schema = schema
        # The empty registry loads no other schemas: references lead to parts of this one.
        self._validator: Validator = Draft202012Validator(dict(schema), registry=Registry())
        self._parse = parse
        self._find_fields = find_fields
        self._limits = limits
        self._tracker = tracker
        self._deadline_s = asyncio.get_running_loop().time() + limits.limit_s

    async def run(self) -> StructuredResult[T]:
        abilities = self._model.traits.abilities
        rejected: _Rejected | None = None
        for level in _choose_levels(abilities):
            if rejected is not None and not rejected.has_object:
                rejected = None  # another form begins afresh
            for _ in range(_MAX_CALLS[level]):
                try:
                    reply = await self._ask(self._build_request(level, rejected))
                except ModelFailed as failure:
                    if failure.kind != "bad_request" or level == "plain":
                        raise
                    break
                outcome = await self._read(level, reply)
                if isinstance(outcome, StructuredResult):
                    return outcome
                rejected = outcome
        failed = StructuredCallFailed(f"The model gave no usable reply (model calls: {self._tracker.count}).")
        failed.problem = rejected.problem if rejected else ""
        raise failed

    def _build_request(self, level: Level, rejected: _Rejected | None) -> ModelRequest:
        if level == "native":
            tool = ToolDeclaration(TOOL_NAME, _load_prompt("tool"), self._schema)
            return ModelRequest(self._messages, self._limits.max_output_tokens, (tool,), force_tool=TOOL_NAME)
        messages = _add_instruction(self._messages, self._schema)
        if rejected is not None:
            messages = (*messages, *_build_correction(rejected))
        request = ModelRequest(messages, self._limits.max_output_tokens)
        if level == "plain":
            return request
        has_schema = "json_schema" in self._model.traits.abilities
        return replace(request, reply_form=JsonReply(self._schema if has_schema else None))

    async def _ask(self, request: ModelRequest) -> _Reply:
        texts: list[str] = []
        arguments: list[str] = []
        chars = 0
        with self._tracker.open_call(request) as call:
            async with asyncio.timeout_at(self._deadline_s), aclosing(self._model.generate(request)) as pieces:
                async for piece in pieces:
                    call.note(piece)
                    match piece:
                        case TextDelta(text):
                            texts.append(text)
                            chars += len(text)
                        case ToolCallDelta(index=0):
                            arguments.append(piece.arguments)
                            chars += len(piece.arguments)
                        case _:
                            """Neither reasoning nor another call is read."""
                    if chars > self._limits.max_reply_chars:
                        break
        return _Reply("".join(arguments or texts), call.finish.reason if call.finish else None)

    async def _read(self, level: Level, reply: _Reply) -> StructuredResult[T] | _Rejected:
        match reply.reason:
            case "refusal" | "content_filter":
                raise StructuredCallFailed("The model refused to answer.")
            case "length" | None:
                return _Rejected(reply.text, "it was too long and was cut off", has_object=False)
            case "stop":
                """It is whole."""
        if len(reply.text) <= MAX_READ_ON_LOOP_CHARS:
            matching, problem = self._find_matching(reply.text)
        else:
            matching, problem = await asyncio.to_thread(self._find_matching, reply.text)
        if not matching and level == "plain" and self._find_fields is not None:
            fields = self._find_fields(reply.text)
            matching = [fields] if fields is not None and not self._try_find_problem(fields) else []
        for raw in matching:
            try:
                value = self._parse(raw)
            except ValueError as error:
                problem = problem or str(error)[: MAX_PROBLEMS * MAX_PROBLEM_CHARS] or "its content is invalid"
            else:
                return StructuredResult(value, raw, level, self._tracker.sum_usage(), self._tracker.count)
        return _Rejected(reply.text, problem or "it contains no JSON object", has_object=bool(problem))

    def _find_matching(self, text: str) -> tuple[list[Mapping[str, Any]], str]:
        """The objects that match the schema, and what is wrong with the first one if it does not."""
        objects = list(
            islice(extract_json(text if text.lstrip().startswith("{") else drop_reasoning(text)), MAX_OBJECTS)
        )
        problems = [self._try_find_problem(each) for each in objects]
        matching = [each for each, problem in zip(objects, problems, strict=True) if not problem]
        return list(matching), problems[0] if problems else ""

    def _try_find_problem(self, value: Mapping[str, Any]) -> str:
        """What violates the schema; empty if nothing does."""
        try:
            errors = islice(self._validator.iter_errors(dict(value)), MAX_PROBLEMS)
            return "; ".join(f"{error.json_path}: {error.message}"[:MAX_PROBLEM_CHARS] for error in errors)
        except RecursionError:
            return "it is nested too deeply"


def _choose_levels(abilities: Set[Ability]) -> Iterator[Level]:
    if "tool_call" in abilities:
        yield "native"
    if abilities & {"json_mode", "json_schema"}:
        yield "json"
    yield "plain"


def _add_instruction(messages: tuple[PromptMessage, ...], schema: Mapping[str, object]) -> tuple[PromptMessage, ...]:
    """The messages, with the form of the reply at the end of the first system text."""
    part = TextPart(_load_prompt("reply").replace("{schema}", json.dumps(dict(schema), ensure_ascii=False)))
    if messages and messages[0].role == "system":
        return (PromptMessage("system", (*messages[0].parts, part)), *messages[1:])
    return (PromptMessage("system", (part,)), *messages)


def _build_correction(rejected: _Rejected) -> tuple[PromptMessage, PromptMessage]:
    """The rejected reply, which providers accept only with a text, and the request for another one."""
    shown = rejected.text.strip()[:MAX_SHOWN_REPLY_CHARS] or "(empty)"
    text = _load_prompt("reformat").replace("{problem}", rejected.problem)
    return PromptMessage("assistant", (TextPart(shown),)), PromptMessage("user", (TextPart(text),))


@cache
def _load_prompt(name: str) -> str:
    return files("chat_proc.models").joinpath(f"structured_{name}.md").read_text(encoding="utf-8").strip()

"""Model calls that the workflow or a tool of an author asks for: values, and replies in channels, which clients see
while they are written if a workflow asks. The turn records what they cost."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from pydantic import Field, ValidationError

from chat_proc.agent.authored.requests import Key, Name, Request, explain_request
from chat_proc.agent.generation import Emit, RoundTexts, WaitingNotice
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.limits import reached_cap
from chat_proc.bundles.host.host_process import SendDelta
from chat_proc.catalog.schemas import Keywords, read_author_schema
from chat_proc.channels.streaming import build_request, build_result, stream_with_channels
from chat_proc.models.calls import CallTracker, ModelRole, describe_turn
from chat_proc.models.structured import StructuredCallFailed, StructuredLimits, structured_call
from chat_proc.turn.leased import LeasedTurn
from everturn.core.errors import Invalid
from everturn.core.threads import call_sized
from everturn.events.model import AnyEvent, ChatPhase
from everturn.models.port import LanguageModel, ModelFailed, ModelPiece, ModelRequest, ModelTraits
from everturn.timeline.blocks import ChannelsBody, ChannelTextRecord
from everturn_sdk.channels import ChannelFormat, ChannelInstance, ChannelSpec

KNOWN_MARKERS: Final = frozenset({"answer", "canvas", "thinking", "timeline_text"})
"""Markers that every client shows. A bundle declares others."""
FOLLOWUPS: Final = "followup"
"""The marker of a JSON channel with suggestions for the next message."""
MAX_MODEL_CALLS: Final = 20
"""Of each kind, by the workflow of one turn, and as many by its tools."""
MAX_CHANNELS: Final = 20
MAX_MESSAGES: Final = 100
MAX_REPLY_CHARS: Final = 100_000
"""A longer reply is cut."""
MAX_FIELDS: Final = 100
"""Fields of JSON that one reply shows."""
MAX_FOLLOWUPS: Final = 5
MAX_FOLLOWUP_CHARS: Final = 300
_UNCHECKED: Final = frozenset({"pattern", "patternProperties", "uniqueItems", "format"})
"""Left out of schemas: a pattern can take hours. The SDK checks pydantic models as a whole."""

Message = Mapping[str, Any]


class ChannelRequest(Request):
    """A channel of a reply; `has_value` means that it contains JSON."""

    name: Name
    format: ChannelFormat
    replace_citations: bool
    emit_marker: Name | None
    has_value: bool


class StreamRequest(Request):
    """The arguments of `everturn_sdk.Models.stream_with_channels`."""

    key: Key
    messages: tuple[Message, ...] = Field(min_length=1, max_length=MAX_MESSAGES)
    role: str = Field(max_length=100)
    channels: tuple[ChannelRequest, ...] = Field(min_length=1, max_length=MAX_CHANNELS)
    agent: str = Field(max_length=100)
    artifact_name: str | None = Field(max_length=200)
    sources_list: tuple[Mapping[str, Any], ...] | None = Field(max_length=500)
    return_full_raw: bool
    composite_cfg: Mapping[str, str] | None
    composite_channel: str | None
    composite_marker: Name
    max_output_tokens: int = Field(ge=1)
    sends_deltas: bool


class StructuredRequest(Request):
    """The arguments of `everturn_sdk.Models.structured_call`."""

    key: Key
    messages: tuple[Message, ...] = Field(min_length=1, max_length=MAX_MESSAGES)
    schema_: Mapping[str, Any] = Field(alias="schema")
    role: str = Field(max_length=100)
    max_output_tokens: int = Field(ge=1)


class WorkflowModels:
    """Makes the calls of turns of one kit, for this `purpose`. `markers` are those that the bundle declares."""

    def __init__(
        self, kit: TurnKit, parts: LoopDependencies, markers: frozenset[str], purpose: ModelRole = "workflow"
    ) -> None:
        self._kit = kit
        self._parts = parts
        self._purpose: ModelRole = purpose
        self._markers = KNOWN_MARKERS | markers

    def check_marker(self, marker: str) -> None:
        """Raise Invalid unless clients know it."""
        if marker not in self._markers:
            known = ", ".join(sorted(self._markers))
            raise Invalid(
                f"The marker {marker!r} is not known. Add it to `markers` in bundle.toml, or use one of {known}."
            )

    async def stream(
        self, turn: LeasedTurn, wanted: StreamRequest, number: int, send: SendDelta, *, is_shown: bool = True
    ) -> ChannelsBody:
        """Call a model and stream its reply in this round, to clients if it `is_shown`. Raises Invalid if the request
        is wrong; a failure of the model is in `meta` of the result."""
        markers = [each.emit_marker for each in wanted.channels]
        if wanted.composite_channel is not None:
            markers.append(wanted.composite_marker)
        for marker in markers:
            if is_shown and marker not in (None, FOLLOWUPS):
                self.check_marker(marker)
        reply = _StreamedReply(turn, wanted, number, send, turn.emit if is_shown else _show_nobody)
        svc = _Service(self._kit, self._parts, turn, number, self._purpose)
        try:
            with turn.activity.open_call("model call"):
                results, meta = await stream_with_channels(
                    svc=svc,
                    messages=wanted.messages,
                    role=wanted.role,
                    channels=[_build_spec(each) for each in wanted.channels],
                    emit=reply.emit,
                    emit_field=reply.emit_field,
                    agent=wanted.agent,
                    artifact_name=wanted.artifact_name,
                    sources_list=turn.pool.rows if wanted.sources_list is None else wanted.sources_list,
                    return_full_raw=wanted.return_full_raw,
                    composite_cfg=wanted.composite_cfg,
                    composite_channel=wanted.composite_channel,
                    composite_marker=wanted.composite_marker,
                    max_output_tokens=min(wanted.max_output_tokens, self._kit.limits.max_output_tokens),
                    max_reply_chars=MAX_REPLY_CHARS,
                )
        except ValueError as error:
            raise Invalid(f"{error}.") from error
        reply.texts.complete()
        written = [(name, n, each) for name, result in results.items() for n, each in enumerate(result.instances)]
        return ChannelsBody(
            key=wanted.key,
            texts=(*(reply.record(*each) for each in written), *reply.record_fields()),
            used_sources={name: tuple(result.used_sources) for name, result in results.items() if result.used_sources},
            followups=next(
                (_read_followups(results[each.name].obj) for each in wanted.channels if each.emit_marker == FOLLOWUPS),
                (),
            ),
            meta=dict(meta),
        )

    async def call(self, turn: LeasedTurn, wanted: StructuredRequest) -> Mapping[str, Any]:
        """The object that a model gives. Raises Invalid if it gives none that matches the schema."""
        # In a thread, because checking a schema of the largest size takes longer than an event loop may be held.
        schema = await asyncio.to_thread(
            read_author_schema, "structured_call: the schema", wanted.schema_, _leave_to_sdk
        )
        messages = build_request(wanted.messages, max_output_tokens=1).messages
        tokens = min(wanted.max_output_tokens, self._kit.limits.max_output_tokens)
        model = _Service(self._kit, self._parts, turn, turn.progress.sealed_round, self._purpose).choose(wanted.role)
        tracker = CallTracker(
            model.traits,
            self._purpose,
            tracing=self._parts.tracing,
            turn=describe_turn(turn.lease.conversation_id, turn.turn_id),
        )
        try:
            with turn.activity.open_call("model call"):
                result = await structured_call(
                    model,
                    messages,
                    schema,
                    parse_fn=dict,
                    limits=StructuredLimits(max_output_tokens=tokens),
                    tracker=tracker,
                )
        except StructuredCallFailed as failure:
            raise Invalid(f"structured_call: {failure.detail} {failure.problem}".strip()) from failure
        finally:
            for usage in tracker.build_events():
                turn.record_usage(usage)
        return result.value


async def build_stream_answer(wanted: StreamRequest, body: ChannelsBody) -> dict[str, Any]:
    """What a workflow gets of a recorded reply."""

    def build() -> dict[str, Any]:
        results: dict[str, Any] = {}
        for channel in wanted.channels:
            spec = _build_spec(channel)
            instances = [
                ChannelInstance(text.raw, text.complete)
                for text in body.texts
                if text.channel == channel.name and not text.is_field
            ]
            result = build_result(spec, instances, body.used_sources.get(channel.name, ()))
            results[channel.name] = asdict(result)
        return {"results": results, "meta": body.meta}

    return await call_sized(sum(len(text.raw) for text in body.texts), build)


@dataclass(frozen=True, slots=True)
class ToolModels:
    """Answers requests of tools in a round of one turn. Nothing of it is recorded but what it costs."""

    kit: TurnKit
    parts: LoopDependencies
    turn: LeasedTurn
    number: int

    async def answer(self, what: str, arguments: Mapping[str, Any], send: SendDelta) -> object:
        """Raises Invalid, also if the turn has no room for another call."""
        limits, turn = self.kit.limits, self.turn
        if (cap := reached_cap(limits, turn.spent)) is not None:
            raise Invalid(f"The turn has reached {cap}.")
        models, calls = WorkflowModels(self.kit, self.parts, frozenset(), "tool"), turn.tool_model_calls
        limit = asyncio.timeout(limits.wall_time_s - turn.spent.leased_s)
        try:
            async with limit:
                match what:
                    case "stream":
                        wanted = StreamRequest.model_validate(arguments)
                        _count(calls, "stream_with_channels")
                        body = await models.stream(turn, wanted, self.number, send, is_shown=False)
                        given = await build_stream_answer(wanted, body)
                    case "structured":
                        wanted = StructuredRequest.model_validate(arguments)
                        _count(calls, "structured_call")
                        given = await models.call(turn, wanted)
                    case _:
                        raise Invalid("Only a workflow can ask for that.")
        except ValidationError as error:
            raise Invalid(explain_request(error)) from error
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Invalid(f"The turn has reached the time limit of {limits.wall_time_s:.0f} s.") from error
        return await asyncio.to_thread(self.parts.redactor.redact_value, given)


def _count(calls: Counter[str], function: str) -> None:
    if calls[function] >= MAX_MODEL_CALLS:
        raise Invalid(f"The tools of a turn can make at most {MAX_MODEL_CALLS} calls of models.{function}.")
    calls[function] += 1


class _StreamedReply:
    """Shows the deltas of one reply to clients and to the workflow, and keeps what it has shown."""

    def __init__(self, turn: LeasedTurn, wanted: StreamRequest, number: int, send: SendDelta, emit: Emit) -> None:
        self.texts = RoundTexts(emit, number, turn.now)
        self.texts.begin()
        self._channels = {each.name: each for each in wanted.channels}
        self._artifact = wanted.artifact_name
        self._send = send if wanted.sends_deltas else None
        self._fields: dict[tuple[str, int], ChannelTextRecord] = {}

    async def emit(self, **delta: Any) -> None:
        marker = delta["marker"]
        if marker and marker != FOLLOWUPS:
            self._say(delta["channel"], delta)
        if self._send is not None:
            await self._send(delta, False)

    async def emit_field(self, **delta: Any) -> None:
        channel, instance = f"{delta['channel']}.{delta['artifact']}"[:80], delta["instance"]
        if (channel, instance) not in self._fields:
            if len(self._fields) >= MAX_FIELDS:
                return
            self._fields[channel, instance] = ChannelTextRecord(
                channel=channel,
                instance=instance,
                raw="",
                marker=delta["marker"],
                format=delta["format"],
                artifact=delta["artifact"],
                is_field=True,
            )
        self._say(channel, delta)
        if self._send is not None:
            await self._send(delta, True)

    def record(self, name: str, instance: int, written: ChannelInstance) -> ChannelTextRecord:
        channel = self._channels[name]
        marker = "" if channel.emit_marker in (None, FOLLOWUPS) else channel.emit_marker
        shown = self.texts.text(name, instance)
        return ChannelTextRecord(
            channel=name,
            instance=instance,
            raw=written.raw,
            shown=shown if marker and shown != written.raw else None,
            complete=written.complete,
            marker=marker or "",
            format=channel.format,
            artifact=self._artifact,
        )

    def record_fields(self) -> list[ChannelTextRecord]:
        return [each.model_copy(update={"raw": self.texts.text(*key)}) for key, each in self._fields.items()]

    def _say(self, channel: str, delta: Mapping[str, Any]) -> None:
        self.texts.say(
            channel,
            delta["instance"],
            delta["text"],
            marker=delta["marker"],
            format=delta["format"],
            artifact=delta["artifact"],
        )


@dataclass(frozen=True, slots=True)
class _Service:
    """Chooses models, whose calls the turn records in this round."""

    kit: TurnKit
    parts: LoopDependencies
    turn: LeasedTurn
    number: int
    purpose: ModelRole

    def choose(self, role: str) -> LanguageModel:
        """The model of a role for which the operator has configured one, otherwise the agent's."""
        return self.kit.hinted[role].model if role in self.kit.hinted else self.kit.model

    def model_for(self, role: str) -> LanguageModel:
        models = (self.choose(role), self.kit.fallback)
        return _RecordedModel([model for model in models if model is not None], self)

    async def call(self, model: LanguageModel, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """What the model writes. What it costs is recorded in any case."""
        turn = self.turn
        about = {**describe_turn(turn.lease.conversation_id, turn.turn_id), "everturn.round": self.number}
        tracker = CallTracker(model.traits, self.purpose, tracing=self.parts.tracing, turn=about)
        ratio = self.kit.ratios.of(model.traits.ledger_name)
        try:
            with tracker.open_call(request, ratio) as call, WaitingNotice(turn, self.number) as notice:
                async with aclosing(model.generate(request)) as pieces:
                    async for piece in pieces:
                        notice.note(piece)
                        call.note(piece)
                        yield piece
                        self.parts.failpoints.hit("turn.mid_stream")
        finally:
            for usage in tracker.build_events():
                turn.record_usage(usage)


@dataclass(frozen=True, slots=True)
class _RecordedModel:
    """A model with its fallback."""

    models: Sequence[LanguageModel]
    service: _Service

    @property
    def traits(self) -> ModelTraits:
        return self.models[0].traits

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        for model in self.models:
            try:
                async with aclosing(self.service.call(model, request)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except ModelFailed as failure:
                if failure.partial or model is self.models[-1]:
                    raise
                self.service.turn.emit(ChatPhase(phase="model_fallback", reason=failure.kind), self.service.number)


def _show_nobody(_data: AnyEvent, _round: int | None) -> None:
    """For replies that only their tool reads."""


def _leave_to_sdk(fields: Keywords) -> Keywords:
    """What models are given of a schema."""
    return {key: value for key, value in fields.items() if key not in _UNCHECKED}


def _build_spec(channel: ChannelRequest) -> ChannelSpec:
    written: ChannelFormat = "json" if channel.has_value else channel.format
    return ChannelSpec(
        channel.name, written, replace_citations=channel.replace_citations, emit_marker=channel.emit_marker
    )


def _read_followups(value: object) -> tuple[str, ...]:
    """The suggestions in the JSON of a channel: a list of texts, also as `followups` of an object."""
    listed = cast("Mapping[str, object]", value).get("followups") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        return ()
    texts = [each.strip()[:MAX_FOLLOWUP_CHARS] for each in cast("list[object]", listed) if isinstance(each, str)]
    return tuple(filter(None, texts))[:MAX_FOLLOWUPS]

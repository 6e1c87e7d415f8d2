"""Streams one model reply through channels that the caller declares: each delta is sent to `emit`, and the results are
returned at the end. Workflows of bundles call it (`agent/authored/models.py`); the agent's decisions are read by
`decision_stream.py`."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Protocol, assert_never, cast, get_args

from chat_proc.channels.citations import CitationFormat, CitationReplacer, index_sources
from chat_proc.channels.json_text import FieldPiece, FieldText, JsonFieldReader, Path
from chat_proc.channels.parser import (
    Body,
    ChannelClosed,
    ChannelOpened,
    ChannelParser,
    ChannelSyntax,
    ChannelText,
    OutsideText,
    Piece,
    TagTable,
)
from chat_proc.channels.reply_parts import ReplyText
from chat_proc.models.json_values import JsonRefusal, read_json
from everturn.core.errors import Invalid
from everturn.core.threads import call_sized
from everturn.models.port import (
    LanguageModel,
    ModelFailed,
    ModelRequest,
    ModelRetry,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    Role,
    TextDelta,
    TextPart,
    ToolCallDelta,
)
from everturn.timeline.sources import Source, try_source
from everturn_sdk.channels import (
    ChannelFormat,
    ChannelInstance,
    ChannelResult,
    ChannelSpec,
    EmitDelta,
    ServiceError,
    StreamMeta,
)

CITED_FORMATS: dict[str, CitationFormat] = {"markdown": "markdown", "text": "text", "html": "html"}
_BODIES: dict[str, Body] = {"json": "json", "code": "code"}

MessageLike = PromptMessage | Mapping[str, object]

DEFAULT_OUTPUT_TOKENS = 16_000
DEFAULT_REPLY_CHARS = 400_000


def build_syntax(spec: ChannelSpec) -> ChannelSyntax:
    """The syntax of a channel for the parser."""
    return ChannelSyntax(spec.name, _BODIES.get(spec.format, "code" if spec.name == "code" else "prose"))


def find_citations(spec: ChannelSpec) -> CitationFormat | None:
    """The format of citations in a channel; None if they remain unchanged."""
    return CITED_FORMATS.get(spec.format) if spec.replace_citations else None


class ModelService(Protocol):
    """Chooses the model for a role, such as `answer.generator.regular`."""

    def model_for(self, role: str) -> LanguageModel: ...


class CompositeJsonArtifactStreamer:
    """Reads one JSON object, by `feed` and then `finish`; each field is sent to `emit` with its name as the artifact.

    `artifacts` maps the field names to stream to their formats; None streams every field. An unknown format (a schema
    path) means markdown. Strings are sent decoded and with citations replaced, other values as JSON text with the
    format json. The last delta of a field is empty and completed.
    """

    def __init__(
        self,
        *,
        emit: EmitDelta,
        artifacts: Mapping[str, str] | None = None,
        channel: str = "answer",
        instance: int = 0,
        marker: str = "canvas",
        sources: Mapping[int, Source] | None = None,
    ) -> None:
        self._emit = emit
        self._artifacts = artifacts
        self._channel = channel
        self._instance = instance
        self._marker = marker
        self._sources = sources or {}
        self._reader = JsonFieldReader(self._is_artifact)
        self._field: _Field | None = None

    async def feed(self, text: str) -> None:
        """Read the next piece of the JSON text."""
        for piece in self._reader.feed(text):
            await self._emit_piece(piece)

    async def finish(self) -> None:
        """End the channel: a field that is still open is completed with its text so far."""
        for piece in self._reader.finish():
            await self._emit_piece(piece)

    def _is_artifact(self, path: Path) -> bool:
        return len(path) == 1 and (self._artifacts is None or path[0] in self._artifacts)

    async def _emit_piece(self, piece: FieldPiece) -> None:
        field = self._field or self._begin(piece)
        if isinstance(piece, FieldText):
            self._field = field
            await self._emit_delta(field, field.cite.feed(piece.text) if field.cite else piece.text)
        else:
            self._field = None
            await self._emit_delta(field, field.cite.finish() if field.cite else "")
            await self._emit_delta(field, "", completed=True)

    def _begin(self, piece: FieldPiece) -> "_Field":
        name = str(piece.path[0])
        text_format = _read_format((self._artifacts or {}).get(name))
        if isinstance(piece, FieldText) and piece.is_json:
            text_format = "json"
        cited = CITED_FORMATS.get(text_format)
        return _Field(name, text_format, CitationReplacer(self._sources, cited) if cited else None)

    async def _emit_delta(self, field: "_Field", text: str, *, completed: bool = False) -> None:
        if not text and not completed:
            return
        await self._emit(
            channel=self._channel,
            instance=self._instance,
            index=field.next_index(),
            text=text,
            completed=completed,
            marker=self._marker,
            format=field.format,
            artifact=field.name,
        )


class _Field:
    """The field that is being written; it counts its deltas."""

    __slots__ = ("_deltas", "cite", "format", "name")

    def __init__(self, name: str, text_format: ChannelFormat, cite: CitationReplacer | None) -> None:
        self.name = name
        self.format: ChannelFormat = text_format
        self.cite = cite
        self._deltas = 0

    def next_index(self) -> int:
        self._deltas += 1
        return self._deltas - 1


def _read_format(declared: str | None) -> ChannelFormat:
    for known in get_args(ChannelFormat):
        if declared == known:
            return known
    return "markdown"


def build_result(spec: ChannelSpec, instances: Sequence[ChannelInstance], used_sources: Sequence[int]) -> ChannelResult:
    """The result of one channel."""
    raw = "".join(instance.raw for instance in instances)
    obj, error = (None, None)
    if spec.model is not None or spec.format == "json":
        obj, error = _read_value(instances)
    return ChannelResult(raw, obj, list(used_sources), tuple(instances), error).validate(spec)


def _read_value(instances: Sequence[ChannelInstance]) -> tuple[object, str | None]:
    if not instances:
        return None, None
    if len(instances) > 1:
        return None, f"multiple_channel_instances:{len(instances)}"
    read = read_json(instances[0].raw)
    if isinstance(read, JsonRefusal):
        return None, f"{read.fault}: {read.detail}"
    return read.value, None


@dataclass(frozen=True, slots=True)
class CompositeRoute:
    """Which fields of a JSON channel become artifacts, and under which marker."""

    artifacts: Mapping[str, str] | None
    marker: str
    sources: Mapping[int, Source]
    emit: EmitDelta


class ChannelOutput:
    """One declared channel of one reply, through all its occurrences."""

    def __init__(
        self,
        spec: ChannelSpec,
        *,
        emit: EmitDelta,
        artifact: str | None,
        sources: Mapping[int, Source],
        composite: CompositeRoute | None = None,
    ) -> None:
        self.spec = spec
        self._emit = emit
        self._artifact = artifact
        self._sources = sources
        self._composite_route = composite
        self._composite: CompositeJsonArtifactStreamer | None = None
        self._cite: CitationReplacer | None = None
        self._instance = 0
        self._index = 0
        self._written: list[str] = []
        self._instances: list[ChannelInstance] = []
        self._used_sources: dict[int, None] = {}

    def open(self, instance: int) -> None:
        """Begin a new occurrence."""
        self._instance = instance
        self._index = 0
        cited = find_citations(self.spec)
        self._cite = CitationReplacer(self._sources, cited) if cited else None
        route = self._composite_route
        if route is not None:
            self._composite = CompositeJsonArtifactStreamer(
                emit=route.emit,
                artifacts=route.artifacts or None,
                channel=self.spec.name,
                instance=instance,
                marker=route.marker,
                sources=route.sources,
            )

    def write(self, text: str) -> Awaitable[None]:
        """Write the next text of the open occurrence. It runs for every chunk, so the usual case is one call of
        `emit`."""
        self._written.append(text)
        shown = text if self._cite is None else self._cite.feed(text)
        if not shown or self._composite is not None:
            return self._write_composite(shown, text)
        return self._deliver(shown)

    async def _write_composite(self, shown: str, text: str) -> None:
        if shown:
            await self._deliver(shown)
        if self._composite is not None:
            await self._composite.feed(text)

    async def close(self, *, complete: bool) -> None:
        """End the open occurrence."""
        if self._cite is not None:
            rest = self._cite.finish()
            self._used_sources.update(dict.fromkeys(self._cite.used_sids))
            if rest:
                await self._deliver(rest)
        if self._composite is not None:
            await self._composite.finish()
        await self._deliver("", completed=True)
        self._instances.append(ChannelInstance("".join(self._written), complete))
        self._written.clear()

    def build_result(self) -> ChannelResult:
        """The content of the channel; call it when the reply is over."""
        return build_result(self.spec, self._instances, tuple(self._used_sources))

    def _deliver(self, text: str, *, completed: bool = False) -> Awaitable[None]:
        index = self._index
        self._index = index + 1
        spec = self.spec
        return self._emit(
            channel=spec.name,
            instance=self._instance,
            index=index,
            text=text,
            completed=completed,
            marker=spec.emit_marker or "",
            format=spec.format,
            artifact=self._artifact,
        )


TEXT_ROLES: tuple[Role, ...] = ("system", "user", "assistant")
"""The roles of messages that are given as mappings: these have no calls and results."""


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
    for role in TEXT_ROLES:
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


async def stream_with_channels(
    *,
    svc: ModelService,
    messages: Sequence[MessageLike],
    role: str,
    channels: Sequence[ChannelSpec],
    emit: EmitDelta,
    emit_field: EmitDelta | None = None,
    agent: str = "",
    artifact_name: str | None = None,
    sources_list: Iterable[Source | Mapping[str, object]] = (),
    return_full_raw: bool = False,
    composite_cfg: Mapping[str, str] | None = None,
    composite_channel: str | None = None,
    composite_marker: str = "canvas",
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS,
    max_reply_chars: int = DEFAULT_REPLY_CHARS,
) -> tuple[dict[str, ChannelResult], StreamMeta]:
    """Call the model of `role` once and stream its reply.

    Each channel's text is sent to `emit` under the channel's marker, which is empty if clients are not to see it; an
    empty completed delta ends each occurrence. The fields of `composite_channel` are sent to `composite_marker` as
    artifacts (those in `composite_cfg`, or all), by `emit_field` if it is given. The results have one entry for each
    declared channel. A model failure raises no exception: the text so far is in the results and `service_error` says
    why it stopped. An exception from `emit` ends the call. Rows of `sources_list` without a usable `sid` are skipped.
    Channels that are declared twice, and an undeclared `composite_channel`, raise ValueError.
    """
    if composite_channel is not None and composite_channel not in {spec.name for spec in channels}:
        raise ValueError(f"composite_channel {composite_channel!r} is not among the channels")
    parser = ChannelParser(TagTable(map(build_syntax, channels)))
    model = svc.model_for(role)
    sources = index_sources(_read_sources(sources_list))
    composite = CompositeRoute(composite_cfg, composite_marker, sources, emit_field or emit)
    outputs = {
        spec.name: ChannelOutput(
            spec,
            emit=emit,
            artifact=artifact_name,
            sources=sources,
            composite=composite if spec.name == composite_channel else None,
        )
        for spec in channels
    }
    reply = _Reply(parser, outputs, max_reply_chars)
    await reply.run(model, build_request(messages, max_output_tokens=max_output_tokens))
    results = await call_sized(reply.chars, lambda: {name: output.build_result() for name, output in outputs.items()})
    return results, reply.build_meta(model_name=model.traits.name, agent=agent, with_raw=return_full_raw)


class _Reply:
    """Passes one reply through the parser to the outputs."""

    def __init__(self, parser: ChannelParser, outputs: Mapping[str, ChannelOutput], max_chars: int) -> None:
        self._parser = parser
        self._outputs = outputs
        self._open: ChannelOutput | None = None
        self._text = ReplyText(max_chars)
        self._outside: list[str] = []
        self._finished: ReplyFinished | None = None
        self._error: ServiceError | None = None

    @property
    def chars(self) -> int:
        return len(self._text.raw)

    async def run(self, model: LanguageModel, request: ModelRequest) -> None:
        """Read the reply to its end, its cap, or its failure; every channel is closed afterwards."""
        try:
            async with aclosing(model.generate(request)) as pieces:
                async for piece in pieces:
                    match piece:
                        case TextDelta():
                            await self._take(piece.text)
                        case ReplyFinished():
                            self._finished = piece
                        case ReasoningDelta() | ToolCallDelta() | ModelRetry():
                            pass
                        case _:
                            assert_never(piece)
                    if self._text.is_capped:
                        break
        except ModelFailed as failure:
            self._error = _describe(failure)
        cut = self._finished is None or self._finished.reason != "stop"
        await self._pass_on(self._parser.finish(cut=cut))

    def build_meta(self, *, model_name: str, agent: str, with_raw: bool) -> StreamMeta:
        """Facts about the reply in addition to its channels."""
        return StreamMeta(
            service_error=self._error,
            raw=self._text.raw if with_raw else "",
            outside_text="".join(self._outside),
            finish_reason=self._finished.reason if self._finished else None,
            usage=asdict(self._finished.usage) if self._finished else None,
            model_name=model_name,
            agent=agent,
            capped=self._text.is_capped,
        )

    def _take(self, text: str) -> Awaitable[None]:
        text = self._text.take(text)
        if text and self._open is not None and self._parser.try_pass(text):
            return self._open.write(text)
        return self._pass_on(self._parser.feed(text))

    async def _pass_on(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            match piece:
                case ChannelText():
                    await self._outputs[piece.channel].write(piece.text)
                case OutsideText():
                    self._outside.append(piece.text)
                case ChannelOpened():
                    self._open = self._outputs[piece.channel]
                    self._open.open(piece.instance)
                case ChannelClosed():
                    self._open = None
                    await self._outputs[piece.channel].close(complete=piece.complete)
                case _:
                    assert_never(piece)


def _read_sources(rows: Iterable[Source | Mapping[str, object]]) -> Iterable[Source]:
    for row in rows:
        source = row if isinstance(row, Source) else try_source(row)
        if source is not None:
            yield source


def _describe(failure: ModelFailed) -> ServiceError:
    return ServiceError(
        kind=type(failure).__name__,
        message=str(failure),
        retryable=failure.retryable,
        retry_after_s=failure.retry_after_s,
    )

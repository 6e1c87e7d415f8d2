"""Streams one model reply through its channels: deltas to `emit` and to subscribers, and the results at the end."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import assert_never

from chat_proc.channels.channel_output import ChannelOutput, CompositeRoute
from chat_proc.channels.citations import index_sources
from chat_proc.channels.jsontext.strings import storable
from chat_proc.channels.parser import ChannelClosed, ChannelOpened, ChannelParser, ChannelText, OutsideText, Piece
from chat_proc.channels.prompt_messages import MessageLike, build_request
from chat_proc.channels.results import ChannelResult, ServiceError, StreamMeta
from chat_proc.channels.specs import ChannelSpec, ChannelSubscribers, EmitDelta, ModelService
from everturn.model.llm.prompts import ModelRequest
from everturn.model.llm.sources import Source, try_source
from everturn.ports.language_model import (
    LanguageModel,
    ModelFailed,
    ModelRetry,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
)

DEFAULT_OUTPUT_TOKENS = 16_000
DEFAULT_REPLY_CHARS = 400_000


async def stream_with_channels(
    *,
    svc: ModelService,
    messages: Sequence[MessageLike],
    role: str,
    channels: Sequence[ChannelSpec],
    emit: EmitDelta,
    agent: str = "",
    artifact_name: str | None = None,
    sources_list: Iterable[Source | Mapping[str, object]] = (),
    subscribers: ChannelSubscribers | None = None,
    return_full_raw: bool = False,
    composite_cfg: Mapping[str, str] | None = None,
    composite_channel: str | None = None,
    composite_marker: str = "canvas",
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS,
    max_reply_chars: int = DEFAULT_REPLY_CHARS,
) -> tuple[dict[str, ChannelResult], StreamMeta]:
    """Call the model of `role` once and stream its reply.

    Each channel's text goes to `emit` under the channel's marker; an empty completed delta ends each occurrence. The
    fields of `composite_channel` go to `composite_marker` as artifacts (those in `composite_cfg`, or all).
    The results have one entry for each declared channel. A model that fails is no exception: what it wrote is in the
    results and `service_error` says why it stopped. What `emit` raises ends the call; a subscriber that raises is
    logged. Rows of `sources_list` without a usable `sid` are passed over. Channels that are declared twice, and a
    `composite_channel` that is not declared, are ValueErrors.
    """
    if composite_channel is not None and composite_channel not in {spec.name for spec in channels}:
        raise ValueError(f"composite_channel {composite_channel!r} is not among the channels")
    parser = ChannelParser(spec.syntax for spec in channels)
    model = svc.model_for(role)
    sources = index_sources(_read_sources(sources_list))
    composite = CompositeRoute(composite_cfg, composite_marker, sources)
    outputs = {
        spec.name: ChannelOutput(
            spec,
            emit=emit,
            artifact=artifact_name,
            sources=sources,
            subscribers=subscribers.of(spec.name) if subscribers else (),
            composite=composite if spec.name == composite_channel else None,
        )
        for spec in channels
    }
    reply = _Reply(parser, outputs, max_reply_chars)
    await reply.run(model, build_request(messages, max_output_tokens=max_output_tokens))
    results = {name: output.build_result() for name, output in outputs.items()}
    return results, reply.build_meta(model_name=model.traits.name, agent=agent, with_raw=return_full_raw)


class _Reply:
    """One reply on its way through the parser to the outputs."""

    def __init__(self, parser: ChannelParser, outputs: Mapping[str, ChannelOutput], max_chars: int) -> None:
        self._parser = parser
        self._outputs = outputs
        self._open: ChannelOutput | None = None
        self._chars_left = max_chars
        self._raw: list[str] = []
        self._outside: list[str] = []
        self._finished: ReplyFinished | None = None
        self._error: ServiceError | None = None
        self._capped = False

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
                        case ReasoningDelta() | ModelRetry():
                            pass
                        case _:
                            assert_never(piece)
                    if self._capped:
                        break
        except ModelFailed as failure:
            self._error = _describe(failure)
        await self._pass_on(self._parser.finish())

    def build_meta(self, *, model_name: str, agent: str, with_raw: bool) -> StreamMeta:
        """What is known about the reply besides its channels."""
        return StreamMeta(
            service_error=self._error,
            raw="".join(self._raw) if with_raw else "",
            outside_text="".join(self._outside),
            finish_reason=self._finished.reason if self._finished else None,
            usage=self._finished.usage if self._finished else None,
            model_name=model_name,
            agent=agent,
            capped=self._capped,
        )

    def _take(self, text: str) -> Awaitable[None]:
        size = len(text)
        if size > self._chars_left:
            size = self._chars_left
            text = text[:size]
            self._capped = True
        if not text.isascii() or "\x00" in text:
            text = storable(text)
        self._chars_left -= size
        self._raw.append(text)
        if text and self._open is not None and self._parser.is_plain(text):
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

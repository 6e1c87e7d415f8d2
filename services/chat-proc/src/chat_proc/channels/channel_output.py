"""Where the text of one channel goes while it streams: to `emit`, to subscribers, to artifacts, into the result."""

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import structlog

from chat_proc.channels.citations import CitationReplacer
from chat_proc.channels.composite import CompositeJsonArtifactStreamer
from chat_proc.channels.results import ChannelInstance, ChannelResult, build_result
from chat_proc.channels.specs import ChannelFormat, ChannelSpec, EmitDelta, Subscriber
from everturn.model.llm.sources import Source

SUBSCRIBER_TIMEOUT_S = 10.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompositeRoute:
    """Which fields of a JSON channel become artifacts, and under which marker."""

    artifacts: Mapping[str, str] | None
    marker: str
    sources: Mapping[int, Source]


class ChannelOutput:
    """One declared channel of one reply, through all its occurrences."""

    def __init__(
        self,
        spec: ChannelSpec,
        *,
        emit: EmitDelta,
        artifact: str | None,
        sources: Mapping[int, Source],
        subscribers: Sequence[Subscriber] = (),
        composite: CompositeRoute | None = None,
    ) -> None:
        self.spec = spec
        self._emit = emit
        self._artifact = artifact
        self._sources = sources
        self._subscribers = subscribers
        self._composite_route = composite
        self._composite: CompositeJsonArtifactStreamer | None = None
        self._cite: CitationReplacer | None = None
        self._instance = 0
        self._index = 0
        self._written: list[str] = []
        self._instances: list[ChannelInstance] = []
        self._used_sources: dict[int, None] = {}

    def open(self, instance: int) -> None:
        """A new occurrence begins."""
        self._instance = instance
        self._index = 0
        cited = self.spec.cites
        self._cite = CitationReplacer(self._sources, cited) if cited else None
        route = self._composite_route
        if route is not None:
            self._composite = CompositeJsonArtifactStreamer(
                emit=self._emit,
                artifacts=route.artifacts or None,
                channel=self.spec.name,
                instance=instance,
                marker=route.marker,
                sources=route.sources,
            )

    def write(self, text: str) -> Awaitable[None]:
        """More of the open occurrence. It runs for every chunk, so the usual case is one call of `emit`."""
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
        """The open occurrence is over."""
        if self._cite is not None:
            self._used_sources.update(dict.fromkeys(self._cite.used_sids))
            rest = self._cite.finish()
            if rest:
                await self._deliver(rest)
        if self._composite is not None:
            await self._composite.finish()
        await self._deliver("", completed=True)
        self._instances.append(ChannelInstance("".join(self._written), complete))
        self._written.clear()

    def build_result(self) -> ChannelResult:
        """What the channel held; call it when the reply is over."""
        return build_result(self.spec, self._instances, tuple(self._used_sources))

    def _deliver(self, text: str, *, completed: bool = False) -> Awaitable[None]:
        index = self._index
        self._index = index + 1
        spec = self.spec
        if spec.emit_marker is None or self._subscribers:
            return self._deliver_to_all(text, index, completed=completed)
        return self._emit(
            channel=spec.name,
            instance=self._instance,
            index=index,
            text=text,
            completed=completed,
            marker=spec.emit_marker,
            format=spec.format,
            artifact=self._artifact,
        )

    async def _deliver_to_all(self, text: str, index: int, *, completed: bool) -> None:
        """Each subscriber has its own task, so what one raises or how long it takes does not touch the others."""
        delta = _Delta(
            channel=self.spec.name,
            instance=self._instance,
            index=index,
            text=text,
            completed=completed,
            marker=self.spec.emit_marker or "",
            format=self.spec.format,
            artifact=self._artifact,
        )
        if self.spec.emit_marker is not None:
            await self._emit(**delta)
        outcomes = await asyncio.gather(*(_call(fn, **delta) for fn in self._subscribers), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                _log.error("channel_subscriber_failed", channel=self.spec.name, index=index, exc_info=outcome)


class _Delta(TypedDict):
    channel: str
    instance: int
    index: int
    text: str
    completed: bool
    marker: str
    format: ChannelFormat
    artifact: str | None


async def _call(subscriber: Subscriber, **delta: Unpack[_Delta]) -> None:
    async with asyncio.timeout(SUBSCRIBER_TIMEOUT_S):
        outcome = subscriber(**delta)
        if inspect.isawaitable(outcome):
            await outcome

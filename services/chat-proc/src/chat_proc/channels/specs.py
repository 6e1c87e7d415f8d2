"""What a caller declares for a streamed reply: its channels, who listens to them, and where deltas go."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self, get_args

from pydantic import BaseModel

from chat_proc.channels.citations import CitationFormat
from chat_proc.channels.tags import Body, ChannelSyntax
from everturn.ports.language_model import LanguageModel

ChannelFormat = Literal["markdown", "text", "html", "json", "code"]
CHANNEL_FORMATS: frozenset[str] = frozenset(get_args(ChannelFormat))
CITED_FORMATS: dict[str, CitationFormat] = {"markdown": "markdown", "text": "text", "html": "html"}
_BODIES: dict[str, Body] = {"json": "json", "code": "code"}


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One channel of the reply.

    Citations are replaced in markdown, text and html. `model` checks the JSON of the channel. Without `emit_marker` the
    channel is read but its deltas are not emitted. Raises ValueError for a format that no client knows.
    """

    name: str
    format: ChannelFormat = "markdown"
    model: type[BaseModel] | None = None
    replace_citations: bool = True
    emit_marker: str | None = "answer"

    def __post_init__(self) -> None:
        if self.format not in CHANNEL_FORMATS:
            raise ValueError(f"channel format {self.format!r} is none of {sorted(CHANNEL_FORMATS)}")

    @property
    def syntax(self) -> ChannelSyntax:
        """How the parser reads the channel."""
        return ChannelSyntax(self.name, _BODIES.get(self.format, "code" if self.name == "code" else "prose"))

    @property
    def cites(self) -> CitationFormat | None:
        """How citations are written in it; None if they stay as they are."""
        return CITED_FORMATS.get(self.format) if self.replace_citations else None


class EmitDelta(Protocol):
    """Takes one delta, the fields of a `chat.delta` event; `index` counts those of an occurrence or an artifact."""

    async def __call__(
        self,
        *,
        channel: str,
        instance: int,
        index: int,
        text: str,
        completed: bool,
        marker: str,
        format: ChannelFormat,
        artifact: str | None,
    ) -> None: ...


Subscriber = Callable[..., Awaitable[None] | None]


class ChannelSubscribers:
    """Functions that get every delta of a channel, with the arguments of `EmitDelta`, whether it is emitted or not."""

    def __init__(self) -> None:
        self._by_channel: dict[str, list[Subscriber]] = {}

    def subscribe(self, channel: str, fn: Subscriber) -> Self:
        """Add `fn`, plain or async, for `channel`; returns self, so calls can be chained."""
        self._by_channel.setdefault(channel, []).append(fn)
        return self

    def of(self, channel: str) -> tuple[Subscriber, ...]:
        """The subscribers of a channel in the order they came."""
        return tuple(self._by_channel.get(channel, ()))


class ModelService(Protocol):
    """Chooses the model for a role, such as `answer.generator.regular`."""

    def model_for(self, role: str) -> LanguageModel: ...

"""Replies of models in channels: what a workflow declares, and what it gets. The platform makes the call.

A model writes its reply between tags such as `<channel:answer>` and `</channel:answer>`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol, Self, TypedDict, get_args

from pydantic import BaseModel, ValidationError

ChannelFormat = Literal["markdown", "text", "html", "json", "code"]
CHANNEL_FORMATS: Final[frozenset[str]] = frozenset(get_args(ChannelFormat))
SUBSCRIBER_TIMEOUT_S: Final = 10.0
"""Time limit of a subscriber for one delta. One that takes longer gets no more deltas of its call."""

Subscriber = Callable[..., Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One channel of a reply.

    With `replace_citations`, citations such as [[S:1]] are replaced in the markdown, text or html that clients show.
    `model` validates the JSON of the channel. `emit_marker` says where clients show the text; with None they don't show
    it. Raises ValueError for an unknown format.
    """

    name: str
    format: ChannelFormat = "markdown"
    model: type[BaseModel] | None = None
    replace_citations: bool = True
    emit_marker: str | None = "answer"

    def __post_init__(self) -> None:
        if self.format not in CHANNEL_FORMATS:
            raise ValueError(f"unknown channel format {self.format!r}; the formats are {sorted(CHANNEL_FORMATS)}")


class EmitDelta(Protocol):
    """Receives one delta, the fields of a `chat.delta` event; `index` counts the deltas of an occurrence or an
    artifact."""

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


class ChannelSubscribers:
    """Functions that get every delta of a channel, even if clients don't show it. Each is called with the keyword
    arguments `channel`, `instance`, `index`, `text`, `completed`, `marker`, `format` and `artifact`, as is `emit`."""

    def __init__(self) -> None:
        self._by_channel: dict[str, list[Subscriber]] = {}

    def subscribe(self, channel: str, fn: Subscriber) -> Self:
        """Add `fn`, plain or async, for `channel`; returns self, so calls can be chained."""
        self._by_channel.setdefault(channel, []).append(fn)
        return self

    def of(self, channel: str) -> tuple[Subscriber, ...]:
        """The subscribers of a channel in the order of subscription."""
        return tuple(self._by_channel.get(channel, ()))


@dataclass(frozen=True, slots=True)
class ChannelInstance:
    """One occurrence of a channel, exactly as written; `complete` if it had a closing tag."""

    raw: str
    complete: bool


@dataclass(frozen=True, slots=True)
class ChannelResult:
    """All occurrences of a channel.

    `raw` joins them, with citations as written; `used_sources` are the numbers of the cited sources. `obj` is the JSON
    value, or an instance of the channel's model, if the channel occurred once; `error` says why it is missing.
    """

    raw: str = ""
    obj: object = None
    used_sources: list[int] = field(default_factory=list[int])
    instances: tuple[ChannelInstance, ...] = ()
    error: str | None = None

    def validate(self, spec: ChannelSpec) -> "ChannelResult":
        """The same with an instance of the channel's model."""
        if spec.model is None or self.error is not None or not self.instances:
            return self
        try:
            return replace(self, obj=spec.model.model_validate(self.obj))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or spec.name
            return replace(self, obj=None, error=f"invalid: {place}: {first['msg']}")


def read_result(given: Mapping[str, Any]) -> ChannelResult:
    """A result as the platform has sent it."""
    return replace(ChannelResult(**given), instances=tuple(ChannelInstance(**each) for each in given["instances"]))


class ServiceError(TypedDict):
    """Why the model did not finish. Its text until then is in the results."""

    kind: str
    message: str
    retryable: bool
    retry_after_s: float | None


class StreamMeta(TypedDict):
    """Details of a reply. `raw` is empty unless requested; `capped` means that the reply was cut at its limit.
    `usage` has input_tokens, output_tokens, cache_read_tokens, cache_write_tokens and cost_usd."""

    service_error: ServiceError | None
    raw: str
    outside_text: str
    finish_reason: str | None
    usage: Mapping[str, Any] | None
    model_name: str
    agent: str
    capped: bool


class DeltaDelivery:
    """Hands the deltas of one call to the author's functions, in order. None of them can hold up or fail the call."""

    def __init__(
        self,
        emit: Callable[..., Any] | None,
        subscribers: ChannelSubscribers | None,
        log: Callable[[str], None],
        timeout_s: float = SUBSCRIBER_TIMEOUT_S,
    ) -> None:
        self._emit = emit
        self._subscribers = subscribers
        self._log = log
        self._timeout_s = timeout_s
        self._dropped: set[int] = set()

    async def deliver(self, delta: Mapping[str, Any], *, is_field: bool) -> None:
        """A delta of a field of JSON goes to `emit` alone."""
        emit = () if self._emit is None or not delta["marker"] else (self._emit,)
        others = () if self._subscribers is None or is_field else self._subscribers.of(delta["channel"])
        await asyncio.gather(*(self._call(fn, delta) for fn in (*emit, *others) if id(fn) not in self._dropped))

    async def _call(self, fn: Subscriber, delta: Mapping[str, Any]) -> None:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                given = fn(**delta)
                if inspect.isawaitable(given):
                    await given
        except Exception as error:  # noqa: BLE001 - an author's function can raise anything
            if limit.expired():
                self._dropped.add(id(fn))
            why = f"it took more than {self._timeout_s:g} s" if limit.expired() else f"{type(error).__name__}: {error}"
            self._log(f"A function for deltas of the channel {delta['channel']!r} failed: {why}")

"""The texts of one round, as they are streamed to clients."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from everturn.events.model import AnyEvent, ChatDelta

TextFormat = Literal["markdown", "text", "html", "json", "code"]
Emit = Callable[[AnyEvent, int | None], None]


@dataclass(slots=True)
class _Growing:
    marker: str
    format: TextFormat
    artifact: str | None
    first_ts: str
    pieces: list[str] = field(default_factory=lambda: [])
    raw: list[str] = field(default_factory=lambda: [])
    completed: bool = False


class RoundTexts:
    """The texts of one round as streamed to clients; the round's blocks must contain exactly these texts.

    Owned by one round. A text is identified by its channel and instance.
    """

    def __init__(self, emit: Emit, round_number: int, now: Callable[[], str]) -> None:
        self._emit = emit
        self._round = round_number
        self._now = now
        self._texts: dict[tuple[str, int], _Growing] = {}

    def say(
        self,
        channel: str,
        instance: int,
        text: str,
        *,
        marker: str,
        format: TextFormat = "markdown",
        artifact: str | None = None,
        trim_start: bool = False,
        raw: str | None = None,
    ) -> None:
        """Send one more piece; an empty one is ignored. `trim_start` drops blanks before the first character.

        `raw` is the piece as written, if that differs.
        """
        if trim_start and (channel, instance) not in self._texts:
            text = text.lstrip()
        if not text and not raw:
            return
        growing = self._texts.get((channel, instance))
        if growing is None:
            growing = self._texts[channel, instance] = _Growing(marker, format, artifact, self._now())
        growing.raw.append(text if raw is None else raw)
        if text:
            self._send(channel, instance, growing, text, completed=False)
            growing.pieces.append(text)

    def complete(self) -> None:
        """Mark all texts as completed."""
        for (channel, instance), growing in self._texts.items():
            if not growing.completed:
                growing.completed = True
                self._send(channel, instance, growing, "", completed=True)

    def text(self, channel: str, instance: int = 0) -> str:
        """The text sent so far."""
        growing = self._texts.get((channel, instance))
        return "".join(growing.pieces) if growing else ""

    def first_ts(self, channel: str, instance: int = 0) -> str | None:
        """When its first piece was sent, ISO 8601."""
        growing = self._texts.get((channel, instance))
        return growing.first_ts if growing else None

    def instances(self, channel: str) -> list[int]:
        """The instances of a channel, in order."""
        return sorted(instance for name, instance in self._texts if name == channel)

    @property
    def raw(self) -> dict[tuple[str, int], str]:
        """All texts so far as written, by channel and instance."""
        return {key: "".join(growing.raw) for key, growing in self._texts.items()}

    def _send(self, channel: str, instance: int, growing: _Growing, text: str, *, completed: bool) -> None:
        delta = ChatDelta(
            channel=channel,
            instance=instance,
            index=len(growing.pieces),
            text=text,
            completed=completed,
            marker=growing.marker,
            format=growing.format,
            artifact=growing.artifact,
        )
        self._emit(delta, self._round)

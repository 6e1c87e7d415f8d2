"""The events of a turn that no commit covers yet, text merged, so that they can be said again after a rewind."""

from dataclasses import dataclass

from everturn.wire.events import AnyEvent, ChatDelta, ChatPhase, ChatTool


@dataclass(frozen=True, slots=True)
class SaidEvent:
    """An event with the round it belongs to."""

    data: AnyEvent
    round: int | None


class UncommittedEvents:
    """Owned by one emitter. Text pieces of the same channel instance become one piece with the first one's index."""

    def __init__(self) -> None:
        self._said: list[SaidEvent] = []
        self._texts: dict[tuple[int | None, str, int], list[ChatDelta]] = {}

    def add(self, data: AnyEvent, round_number: int | None) -> None:
        if isinstance(data, ChatTool | ChatPhase):
            # Progress is for the moment only; a step, or the next phase, is sent again.
            return
        if not isinstance(data, ChatDelta):
            self._said.append(SaidEvent(data, round_number))
            return
        key = (round_number, data.channel, data.instance)
        if key not in self._texts:
            self._texts[key] = []
            self._said.append(SaidEvent(data, round_number))
        self._texts[key].append(data)

    def clear(self) -> None:
        """A commit covers everything said so far."""
        self._said.clear()
        self._texts.clear()

    def merged(self) -> tuple[SaidEvent, ...]:
        """What to say again, in the order in which each began."""
        return tuple(self._merge(said) for said in self._said)

    def _merge(self, said: SaidEvent) -> SaidEvent:
        if not isinstance(said.data, ChatDelta):
            return said
        pieces = self._texts[said.round, said.data.channel, said.data.instance]
        text = "".join(piece.text for piece in pieces)
        return SaidEvent(said.data.model_copy(update={"text": text, "completed": pieces[-1].completed}), said.round)

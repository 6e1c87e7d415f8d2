"""A running turn as a call of a tool sees it, for tests of tools: it records what the tool reports."""

from collections.abc import Callable

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.model import AnyEvent, ChatStep, ChatTool
from everturn.turns.model import Lease, UsageEvent

_LEASE = Lease(ConversationId("conv_1"), Principal("acme", "main", "ann"), "worker-1", 1)


class RecordingTurn:
    """Implements LiveTurn. `age_s` is the age of its lease."""

    def __init__(self, lease: Lease = _LEASE) -> None:
        self.lease = lease
        self.age_s = 0.0
        self.events: list[AnyEvent] = []
        self.recorded: list[UsageEvent] = []
        self.cap = ""
        self.exchanges: list[bytes] = []
        """The records of model calls."""

    def lease_age_s(self) -> float:
        return self.age_s

    def emit(self, data: AnyEvent) -> None:
        self.events.append(data)

    def record_usage(self, usage: UsageEvent) -> None:
        self.recorded.append(usage)

    def explain_cap(self) -> str:
        return self.cap

    def keep_exchange(self, run: str, number: int, size: int, build: Callable[[], bytes]) -> None:
        self.exchanges.append(build())

    @property
    def steps(self) -> list[tuple[str | None, str]]:
        """Tool and status of each reported step."""
        return [(event.tool_id, event.status) for event in self.events if isinstance(event, ChatStep)]

    @property
    def tool_events(self) -> list[tuple[str, str]]:
        """Kind and text of the events of tools."""
        return [(event.kind, event.text) for event in self.events if isinstance(event, ChatTool)]

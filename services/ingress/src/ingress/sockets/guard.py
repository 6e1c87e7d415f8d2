"""Judges one client's frames before the library gets them: order, size, number and rate, without I/O."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

from ingress.errors import ProblemError, absent, malformed, too_large, too_many
from ingress.sockets.framing import (
    BadCall,
    BadFrame,
    BadJoin,
    Call,
    Join,
    Leave,
    Opening,
    Packet,
    Pong,
    parse_packet,
    try_read_opening,
)

MAX_JOIN_CHARS = 16_384
"""Of a frame that is not a call: only a token makes such frames long, and it has at most half of this."""
MAX_SKIPPED = 100
"""How many attachments above the cap are read and dropped, so that the answer can give the reason."""
BURST_S = 3
"""How many seconds' worth of calls can arrive at once."""
MAX_REFUSED = 100
"""How many calls above the rate are answered with 429 before the socket is closed."""
MAX_OPEN_CALLS = 16
"""Calls of a socket that run, or whose answer has not been read yet."""
LARGE_BYTES = 1_000_000
"""While calls with this many bytes run, the socket accepts no other call: each can hold a whole message in memory."""


class Phase(Enum):
    """NEW must join, JOINING waits for the answer, JOINED can call."""

    NEW = auto()
    JOINING = auto()
    JOINED = auto()


@dataclass(frozen=True, slots=True)
class Pass:
    """Pass the frame to the library. `name` and `size` in bytes are set when it completes a call; `acked` says whether
    the client waits for an answer."""

    name: str | None = None
    size: int = 0
    acked: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep a part of a call: the library gets it with the rest."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop the frame."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Drop the frame, and send the client the reason if it waits for an answer."""

    ack: int | None
    why: ProblemError


@dataclass(frozen=True, slots=True)
class RefuseJoin:
    """The client can't join that namespace, or not with these data; it can try again."""

    namespace: str
    why: ProblemError


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket with a WebSocket close code and a text that gives the reason; `reason` is the metric's label."""

    code: int
    text: str
    reason: str


Verdict = Pass | Keep | Drop | Refuse | RefuseJoin | Close


@dataclass(frozen=True, slots=True)
class SocketCaps:
    """The limits of one socket."""

    message_bytes: int
    text_bytes: int
    """Of the frame with the call itself, which is JSON."""
    files: int
    calls_per_s: float
    calls: frozenset[str]


class SocketGuard:
    """Judges one client's frames. The runner of a call decrements `open_bytes`, the sender of its answer
    `open_calls`."""

    def __init__(self, caps: SocketCaps, now: Callable[[], float]) -> None:
        self.phase = Phase.NEW
        self.open_calls = 0
        self.open_bytes = 0
        self._caps = caps
        self._now = now
        self._tokens = self._burst = caps.calls_per_s * BURST_S
        self._filled_at = now()
        self._refused = 0
        self._call: Call | None = None
        self._due = 0
        self._skipping = 0
        self._bytes = 0

    @property
    def waits(self) -> bool:
        """Whether attachments of a call are still expected."""
        return bool(self._due)

    def begin(self, frame: str | bytes, size: int) -> Opening | Verdict:
        """Judge a frame of `size` bytes without reading its data; a call continues with `judge`."""
        if isinstance(frame, bytes):
            return self._judge_attachment(size)
        if self._due or self._skipping:
            return Close(1002, "An attachment was expected.", "malformed")
        opening = try_read_opening(frame) if self.phase is Phase.JOINED else None
        if opening is None:
            return self._judge_other(frame)
        if opening.attachments > MAX_SKIPPED:
            return Close(1009, "Too many attachments.", "oversized")
        return self._try_refuse(opening, size) or opening

    def judge(self, opening: Opening, packet: Packet | BadFrame, size: int) -> Verdict:
        """Judge a call after its data were read or found invalid."""
        match packet:
            case BadFrame():
                return _close_malformed(packet)
            case Call():
                return self._judge_call(packet, size)
            case BadCall(why):
                return self.refuse(opening, malformed(why))
            case _:
                return self.refuse(opening, absent())

    def refuse(self, opening: Opening, why: ProblemError) -> Verdict:
        """Refuse a call for an external reason; its attachments are read and dropped."""
        self._skipping = opening.attachments
        return Refuse(opening.ack, why)

    def turn_away(self, start: str | bytes, why: ProblemError) -> Verdict:
        """Refuse a frame that had no room in memory and of which only the start was kept."""
        if isinstance(start, bytes):
            call = self._call
            if self._skipping or not self._due or call is None:
                return self._judge_attachment(0)
            self._skipping, self._due, self._call = self._due - 1, 0, None
            self.open_calls -= 1
            return Refuse(call.ack, why)
        opening = self.begin(start, 0)
        return self.refuse(opening, why) if isinstance(opening, Opening) else opening

    def _judge_other(self, frame: str) -> Verdict:
        if len(frame) > MAX_JOIN_CHARS:
            return Close(1009, "Too large for a packet that is not a call.", "oversized")
        if not self._take_token():
            return self._count_refusal(None)
        try:
            return self._judge_packet(parse_packet(frame))
        except BadFrame as error:
            return _close_malformed(error)

    def _judge_packet(self, packet: Packet) -> Verdict:
        match packet:
            case Pong():
                return Pass()
            case Leave():
                return Close(1000, "The client disconnected.", "left")
            case Join() | BadJoin():
                return self._judge_join(packet)
            case Call() | BadCall():
                return Close(1008, "Connect first.", "malformed")
            case _:
                assert_never(packet)

    def _judge_join(self, join: Join | BadJoin) -> Verdict:
        if join.namespace != "/":
            return RefuseJoin(join.namespace, absent("The only namespace is /."))
        if self.phase is not Phase.NEW:
            return Close(1008, "Already connected.", "malformed")
        if isinstance(join, BadJoin):
            return RefuseJoin(join.namespace, malformed(join.why))
        self.phase = Phase.JOINING
        return Pass()

    def _judge_call(self, call: Call, size: int) -> Verdict:
        if call.name not in self._caps.calls:
            return self.refuse(Opening(call.name, call.ack, call.attachments), absent("There is no such event."))
        self.open_calls += 1
        if not call.attachments:
            return self._pass_whole(call, size)
        self._call, self._due, self._bytes = call, call.attachments, size
        return Keep()

    def _try_refuse(self, opening: Opening, size: int) -> Verdict | None:
        if not self._take_token():
            self._skipping = opening.attachments
            return self._count_refusal(opening.ack)
        if self.open_calls >= MAX_OPEN_CALLS:
            return self.refuse(opening, too_many(f"{MAX_OPEN_CALLS} calls are already open.", retry_after_s=1))
        if self.open_bytes >= LARGE_BYTES:
            return self.refuse(opening, too_many("A large message is being checked.", retry_after_s=1))
        if opening.name is not None and opening.name not in self._caps.calls:
            return self.refuse(opening, absent("There is no such event."))
        if opening.attachments > self._caps.files:
            return self.refuse(opening, too_large(f"A message can have at most {self._caps.files} files."))
        if size > self._caps.text_bytes:
            text = (
                f"The text of the event has more than {self._caps.text_bytes} bytes. Send files as binary attachments."
            )
            return self.refuse(opening, too_large(text))
        return None

    def _judge_attachment(self, size: int) -> Verdict:
        if self._skipping:
            self._skipping -= 1
            return Drop()
        if not self._due or self._call is None:
            return Close(1002, "An attachment without its event.", "malformed")
        self._due -= 1
        self._bytes += size
        if self._bytes > self._caps.message_bytes:
            return Close(1009, f"The message has more than {self._caps.message_bytes} bytes.", "oversized")
        return Keep() if self._due else self._pass_whole(self._call, self._bytes)

    def _pass_whole(self, call: Call, size: int) -> Pass:
        self.open_bytes += size
        return Pass(call.name, size, call.ack is not None)

    def _take_token(self) -> bool:
        now = self._now()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._caps.calls_per_s)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        if self._tokens > self._burst / 2:
            self._refused = 0
        return True

    def _count_refusal(self, ack: int | None) -> Verdict:
        self._refused += 1
        if self._refused > MAX_REFUSED:
            return Close(1008, "Too many events.", "flood")
        return Refuse(ack, too_many("Too many events at once.", retry_after_s=1))


def _close_malformed(error: BadFrame) -> Close:
    # A close reason has at most 123 bytes.
    return Close(1002, f"Malformed packet: {error.detail}".encode()[:120].decode(errors="ignore"), "malformed")

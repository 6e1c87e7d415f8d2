"""Messages between a worker and the broker, as frames of `framing`; one request at a time per connection.

    worker -> broker   StartPair, then Attach: from then on the connection is the supervisor's line, byte for byte
    anyone -> broker   KillPair, RemovePair, ListPairs
    broker -> caller   PairStarted, Attached, PairEnded, PairList, or BrokerRefusal

A pair belongs to the connection that started it and ends with it.
"""

import socket
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from everturn.execution.messages import LimitName, Posture, RunLimits

BROKER_FRAME_BYTES: Final = 256 << 10
MAX_LISTED: Final = 200

KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000),
)
"""Options of a TCP connection on both ends: if the other machine vanishes, this is noticed after 25 s. Then the broker
ends the worker's pairs, and the worker's run fails."""

TLS_DIR: Final = "BROKER_TLS_DIR"
TLS_DIR_MEANING: Final = (
    "For TLS between worker and broker: folder of this end's PEM files tls.crt and tls.key, and ca.crt, the CA "
    "that signed the other end's certificate."
)
TLS_AUTHORITY, TLS_CERTIFICATE, TLS_KEY = "ca.crt", "tls.crt", "tls.key"
"""The names of a Kubernetes secret with a certificate."""

PairState = Literal["booting", "warm", "started", "attached", "ending"]
RefusalCode = Literal[
    "bad_message",
    "unknown_profile",
    "unknown_pair",
    "not_attachable",
    "busy",
    "engine_down",
    "image_missing",
    "start_failed",
    "start_timeout",
]


@dataclass(frozen=True, slots=True)
class StartPair:
    """Request a booted pair of this profile, warm if one is available; one for each connection.

    `run_id` has 1 to 200 printable characters, and is for labels and logs only.
    """

    kind: ClassVar[str] = "start_pair"
    profile: str
    run_id: str


@dataclass(frozen=True, slots=True)
class PairStarted:
    """The pair is booted. `pair_id` can't be guessed and is all that attaching, killing or removing needs."""

    kind: ClassVar[str] = "pair_started"
    pair_id: str
    warm: bool
    limits: RunLimits
    posture: Posture
    executor_image: str
    supervisor_image: str


@dataclass(frozen=True, slots=True)
class Attach:
    """Make this connection the supervisor's line; only on the connection that started the pair, and once.

    The caller's end of file is then the supervisor's, its lifeline; the supervisor's end closes the connection.
    """

    kind: ClassVar[str] = "attach"
    pair_id: str


@dataclass(frozen=True, slots=True)
class Attached:
    """The next byte is the supervisor's."""

    kind: ClassVar[str] = "attached"


@dataclass(frozen=True, slots=True)
class KillPair:
    """End both halves now."""

    kind: ClassVar[str] = "kill_pair"
    pair_id: str


@dataclass(frozen=True, slots=True)
class RemovePair:
    """End it and wait until nothing is left; reports what the engine saw. Any connection can send it.

    Also for a pair that ended earlier. Refused with `engine_down` if something of it may still exist.
    """

    kind: ClassVar[str] = "remove_pair"
    pair_id: str


@dataclass(frozen=True, slots=True)
class PairEnded:
    """Nothing of the pair is left. `hits` are the limits that the engine enforced."""

    kind: ClassVar[str] = "pair_ended"
    hits: tuple[LimitName, ...] = ()


@dataclass(frozen=True, slots=True)
class ListPairs:
    """List the pairs; `labels` filter by equality (`run`, `profile`, `state`)."""

    kind: ClassVar[str] = "list_pairs"
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class PairSummary:
    """A pair by its labels. It has no id: only its starter can end it."""

    run_id: str
    profile: str
    state: PairState
    age_s: int


@dataclass(frozen=True, slots=True)
class PairList:
    """At most `MAX_LISTED` pairs, oldest first, and how many there are."""

    kind: ClassVar[str] = "pair_list"
    pairs: tuple[PairSummary, ...]
    total: int


@dataclass(frozen=True, slots=True)
class BrokerRefusal:
    """Why a request was rejected; the connection stays usable unless it was a bad message."""

    kind: ClassVar[str] = "broker_refusal"
    code: RefusalCode
    message: str

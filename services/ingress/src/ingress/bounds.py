"""Bounds of one ingress that no operator sets: they follow from networks and clients, not from an installation."""

from dataclasses import dataclass

from everturn.limits.token_buckets import Limit
from everturn.turns.inbox import UPLOAD_LIMIT

ADDRESS_PART = 5
"""One address can have a fifth of CONNECTIONS_MAX for connections that serve no authenticated request: enough for an
office, and one address that sends nothing does not close the server for others."""
STREAMS_PART = 2
"""Half of CONNECTIONS_MAX can be event streams: the others are for requests, which are short."""
USER_BODIES_PART = 4
"""The bodies of one user can have a quarter of BODIES_MAX_BYTES: five messages of the largest size at the defaults."""
GUEST_ADDRESS_PART = 3
"""One address can have a third of `Bounds.guests_per_minute`."""
JSON_MAX_BYTES = 8_000_000
"""Limit for a message as JSON, with files in base64. It is parsed as a whole; larger ones are sent as
multipart/form-data."""
TEXT_MAX_CHARS = 1_000_000
"""Limit for a message, with or without files: above what the largest model can read at once."""
DOWNLOADS_MAX = 500
"""Files and exports that a process sends at once: each holds a connection and 64 KiB."""
STREAM_QUEUE_BYTES = 131_072
"""Buffered for one slow client: with 5,000 streams at most 655 MB, and a client that is slower gets a snapshot."""
BAD_CREDENTIALS = Limit(300, 60)
"""Limit for one address: too few for guessing, and enough for an office after a key has expired."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that tests make smaller."""

    headers_s: float = 15.0
    """From a connection's first byte to the last header of its request. nginx and Apache wait 60 and 20 s."""
    send_s: float = 60.0
    """After which a client that reads nothing of its response is disconnected, as nginx's send_timeout does."""
    upload_s: float = UPLOAD_LIMIT.total_seconds()
    """For storing the files of a message. Workers delete stored files that no row names after a longer time."""
    bad_credentials: Limit | None = BAD_CREDENTIALS
    """Invalid credentials that one address can send; None for any number."""
    downloads_of_user: int = 16
    """Files and exports sent to one user at once. A browser opens six connections to a server."""
    message_files: int = 20
    """Files of one message. Each is checked and scanned before the message is accepted."""
    streams_of_user: int = 32
    """Event streams of one user that are open at once: the tabs and devices of a person."""
    heartbeat_s: float = 10.0
    """Silence of a stream before it gets a comment: a sixth of the 60 s after which proxies close it."""
    reauthorize_s: float = 60.0
    """After which an open stream's credential is checked again."""
    guests_per_minute: int = 60
    """New guests that one process accepts."""


BOUNDS = Bounds()

"""Bounds what a server can make this process do: the size of a message, the number of values in it, and how many
messages, bytes and values are read in a second."""

import asyncio
from typing import Final

from everturn.core.errors import EverturnError
from everturn_sdk.json_size import count_values

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Limit of one message. The SDK parses it on the event loop: a text of this size takes 5 ms."""
MAX_VALUES: Final = 20_000
"""Values in one message. Parsing and checking so many parts of a result takes 50 ms; a result of 4 MiB could have so
many that it took a second."""
BURST: Final = 500
MESSAGES_PER_S: Final = 200.0
BURST_BYTES: Final = 2 * MAX_MESSAGE_BYTES
BYTES_PER_S: Final = 2.0 * 1024 * 1024
BURST_VALUES: Final = 2 * MAX_VALUES
VALUES_PER_S: Final = 20_000.0
"""After a burst, a server is read no faster than this. Each message costs about 0.2 ms, and each value 0.0025 ms."""
MAX_EVENT_LINES: Final = 20_000
"""Lines of one server-sent event; the SDK reads so many in 20 ms."""
LINES_PER_MESSAGE: Final = 100
"""So many lines of events cost as much as a message."""
PIECE_BYTES: Final = 1024
"""A smaller piece of a reply counts as so many bytes, because it costs as much: about 0.05 ms."""


class TooLarge(EverturnError):
    """The server sent too much."""


def check_message(message: bytes) -> int:
    """About how many values a message has. Raises TooLarge for more than may be parsed on the event loop."""
    if (values := count_values(message, MAX_VALUES)) > MAX_VALUES:
        raise TooLarge(f"A message has more than {MAX_VALUES} values.")
    return values


class Pace:
    """Delays the reading of a connection that sends more than its share."""

    def __init__(self) -> None:
        self._messages = float(BURST)
        self._bytes = float(BURST_BYTES)
        self._values = float(BURST_VALUES)
        self._at_s = asyncio.get_running_loop().time()

    async def wait(self, messages: int, size: int, values: int) -> None:
        """Wait until so many messages, bytes and values may be passed on."""
        now_s = asyncio.get_running_loop().time()
        passed_s, self._at_s = now_s - self._at_s, now_s
        self._messages = min(BURST, self._messages + passed_s * MESSAGES_PER_S) - messages
        self._bytes = min(BURST_BYTES, self._bytes + passed_s * BYTES_PER_S) - size
        self._values = min(BURST_VALUES, self._values + passed_s * VALUES_PER_S) - values
        debt_s = max(-self._messages / MESSAGES_PER_S, -self._bytes / BYTES_PER_S, -self._values / VALUES_PER_S, 0.0)
        if debt_s:
            await asyncio.sleep(debt_s)

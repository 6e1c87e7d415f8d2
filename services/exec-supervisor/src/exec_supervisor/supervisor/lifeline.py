"""The supervisor's lifeline to its worker: when the other end of stdin is closed, the run ends."""

import asyncio
import select
from typing import Final

_EVERY_S: Final = 0.2


class LifelineCut(Exception):
    """The worker is gone, or stopped this process."""


async def watch_lifeline(descriptor: int) -> None:
    """Raise LifelineCut within a fifth of a second after the last writer has closed the pipe, or the peer its socket.

    Reading to the end of file would be later: unread input frames may precede it.
    """
    hangup = select.poll()
    hangup.register(descriptor, select.POLLRDHUP)
    while not hangup.poll(0):  # noqa: ASYNC110 - a hangup alone, without reading, is not an event of the loop
        await asyncio.sleep(_EVERY_S)
    raise LifelineCut

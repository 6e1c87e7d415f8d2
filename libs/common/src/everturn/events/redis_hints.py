"""Hints and inbox notifications over pub/sub: they reach only current listeners."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from redis.asyncio import Redis

from everturn.core.ids import ConversationId
from everturn.core.open_values import report_unknown
from everturn.events.stream import Hint
from everturn.redis.calls import CALL_LIMIT_S, PUBLISH_LIMIT_S, limited, next_message

HINTS = "hints"
INBOX = "inbox:"


class RedisHints:
    """All hints go over one channel."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client

    async def send(self, hint: Hint) -> None:
        async with limited(CALL_LIMIT_S):
            await self._client.publish(HINTS, f"{hint.kind} {hint.conversation_id} {hint.signal_id}")

    async def listen(self, listening: Callable[[], None]) -> AsyncGenerator[Hint]:
        async with aclosing(_listen(self._client, HINTS, listening)) as messages:
            async for _, text in messages:
                # A newer version can know more kinds of hints, with more fields.
                kind, conversation_id, signal_id, *_ = *text.split(" "), "", ""
                if kind in ("status", "signal"):
                    yield Hint(kind, ConversationId(conversation_id), signal_id)
                else:
                    report_unknown("hint", kind)


class RedisInboxBells:
    """One channel for each conversation; a listener receives all of them."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client

    async def ring(self, conversation_id: ConversationId) -> None:
        async with limited(CALL_LIMIT_S):
            await self._client.publish(f"{INBOX}{{{conversation_id}}}", b"")

    async def listen(self) -> AsyncGenerator[ConversationId]:
        async with aclosing(_listen(self._client, f"{INBOX}*", lambda: None)) as messages:
            async for channel, _ in messages:
                yield ConversationId(channel.removeprefix(INBOX).strip("{}"))


async def _listen(client: Any, pattern: str, listening: Callable[[], None]) -> AsyncGenerator[tuple[str, str]]:
    """Channel and text of each message. A ping detects a server that disappeared silently."""
    pubsub = client.pubsub()
    try:
        async with limited(PUBLISH_LIMIT_S):
            await pubsub.psubscribe(pattern)
        while True:
            message = await next_message(pubsub)
            if message["type"] == "psubscribe":
                listening()
            elif message["type"] == "pmessage":
                yield message["channel"].decode(), message["data"].decode()
    finally:
        await pubsub.aclose()

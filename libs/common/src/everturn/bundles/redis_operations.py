"""Requests for operations of bundles in Redis: the ids that wait for a bundle in one list, each request in a key that
expires, and a list for each reply and each cancellation."""

from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import Redis

from everturn.bundles.operations import (
    KEPT_S,
    MAX_WAITING,
    REPLY_KEPT_S,
    OperationReply,
    OperationRequest,
    TooManyWaiting,
    read_reply,
    read_request,
)
from everturn.redis.calls import GRACE_S, PUBLISH_LIMIT_S, limited

_SEND: Final = """
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
_KEPT_MS: Final = round(KEPT_S * 1000)
_REPLY_KEPT_MS: Final = round(REPLY_KEPT_S * 1000)


class RedisOperationQueue:
    """Implements OperationQueue. Each wait occupies a connection of the client, so it needs a client of its own."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client
        self._send: Any = client.register_script(_SEND)

    async def send(self, request: OperationRequest) -> None:
        keys = [_queue_key(request.bundle_id), _request_key(request.request_id)]
        arguments = [MAX_WAITING, request.request_id, request.write(), _KEPT_MS]
        async with limited(PUBLISH_LIMIT_S):
            accepted = await self._send(keys=keys, args=arguments)
        if not accepted:
            raise TooManyWaiting(f"At most {MAX_WAITING} can wait.")

    async def withdraw(self, request: OperationRequest) -> bool:
        async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=True) as pipeline:
            pipeline.delete(_request_key(request.request_id))
            pipeline.lrem(_queue_key(request.bundle_id), 0, request.request_id)
            removed, _ = await pipeline.execute()
        return bool(removed)

    async def cancel(self, request_id: str) -> None:
        await self._push(_cancel_key(request_id), b"1")

    async def wait_reply(self, request_id: str, *, timeout_s: float) -> OperationReply | None:
        written = await self._pop(_reply_key(request_id), timeout_s)
        return None if written is None else read_reply(written)

    async def take(self, bundle_ids: Sequence[str], *, timeout_s: float) -> OperationRequest | None:
        keys = [_queue_key(bundle_id) for bundle_id in bundle_ids]
        async with limited(timeout_s + GRACE_S):
            popped = await self._client.execute_command("BLMPOP", timeout_s, len(keys), *keys, "LEFT")
        if popped is None:
            return None
        async with limited(PUBLISH_LIMIT_S):
            # One that was withdrawn or has expired is not there any more.
            written = await self._client.getdel(_request_key(popped[1][0].decode()))
        return None if written is None else read_request(written)

    async def reply(self, request_id: str, reply: OperationReply) -> None:
        await self._push(_reply_key(request_id), reply.write())

    async def wait_cancelled(self, request_id: str, *, timeout_s: float) -> bool:
        return await self._pop(_cancel_key(request_id), timeout_s) is not None

    async def _push(self, key: str, value: bytes) -> None:
        async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=True) as pipeline:
            pipeline.rpush(key, value)
            pipeline.pexpire(key, _REPLY_KEPT_MS)
            await pipeline.execute()

    async def _pop(self, key: str, timeout_s: float) -> bytes | None:
        async with limited(timeout_s + GRACE_S):
            popped = await self._client.blpop([key], timeout=timeout_s)
        return None if popped is None else popped[1]


def _queue_key(bundle_id: str) -> str:
    return f"operations:queue:{bundle_id}"


def _request_key(request_id: str) -> str:
    return f"operations:request:{request_id}"


def _reply_key(request_id: str) -> str:
    return f"operations:reply:{request_id}"


def _cancel_key(request_id: str) -> str:
    return f"operations:cancel:{request_id}"

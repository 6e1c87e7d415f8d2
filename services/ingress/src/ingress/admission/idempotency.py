"""Idempotency keys: reading the header, hashing the submission, and concurrent requests with the same key."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.datastructures import Headers

from everturn.core.clock import Clock
from everturn.core.identity import Principal
from everturn.turns.inbox import IdempotencyKey, KeyBusy
from ingress.errors import malformed

HEADER = "idempotency-key"
_PRINTABLE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?", re.ASCII)

CONCURRENT_WAIT_S = 5.0
"""How long a request waits for another one with the same Idempotency-Key (api.md)."""
POLL_EVERY_S = 0.05

Answer = TypeVar("Answer")


def try_read_key(headers: Headers) -> str | None:
    """The client's key: 1 to 200 printable ASCII characters, quoted or not; None without the header."""
    values = headers.getlist(HEADER)
    if not values:
        return None
    key = _unquote(values[0].strip())
    if len(values) > 1 or not _PRINTABLE.fullmatch(key):
        raise malformed("Idempotency-Key must be one string of 1 to 200 printable ASCII characters.")
    return key


def build_key(headers: Headers, *, route: str, content: Mapping[str, Any]) -> IdempotencyKey | None:
    """The key with the hash of the canonical content, in which the sha256 of a file represents the file."""
    key = try_read_key(headers)
    if key is None:
        return None
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return IdempotencyKey(route, key, hashlib.sha256(canonical.encode()).hexdigest())


def _unquote(value: str) -> str:
    # RFC 8941 strings escape only the quote and the backslash.
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r'\\(["\\])', r"\1", value[1:-1])
    return value


class IdempotencyLocks:
    """Requests of this process with the same Idempotency-Key run one after another, so that they need one place and one
    check, and all wait for the first one's answer.

    Holds a lock for each key in use. For a duplicate in another process, the transaction waits.
    """

    def __init__(self, clock: Clock, *, wait_s: float = CONCURRENT_WAIT_S) -> None:
        self._clock = clock
        self._wait_s = wait_s
        self._locks: dict[tuple[str, ...], asyncio.Lock] = {}
        self._users: dict[tuple[str, ...], int] = {}

    @asynccontextmanager
    async def hold(self, principal: Principal, key: IdempotencyKey | None) -> AsyncGenerator[float]:
        """Hold the key's lock. Yields the remaining seconds to wait for a duplicate in another process. Raises KeyBusy
        when one in this process takes too long."""
        if key is None:
            yield self._wait_s
            return
        began = self._clock.monotonic()
        name = (*principal.owner, key.route, key.key)
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            await self._acquire(lock)
            try:
                yield max(0.0, self._wait_s - (self._clock.monotonic() - began))
            finally:
                lock.release()
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]

    async def _acquire(self, lock: asyncio.Lock) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await lock.acquire()
        except TimeoutError as error:
            raise KeyBusy() from error


async def wait_for_concurrent_request(
    commit: Callable[[], Awaitable[Answer]], clock: Clock, *, wait_s: float = CONCURRENT_WAIT_S
) -> Answer:
    """Return the result of `commit`, retried while a duplicate in another process holds the key. Raises KeyBusy after
    `wait_s`."""
    give_up = clock.monotonic() + wait_s
    while True:
        try:
            return await commit()
        except KeyBusy:
            if clock.monotonic() >= give_up:
                raise
        await asyncio.sleep(POLL_EVERY_S)

"""Checks whether a caller's proof is still valid: revoked keys, and users whose credentials were revoked. The caller of
an open stream or socket is rechecked at intervals."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

import structlog

from everturn.accounts.credentials import ApiKey, Credentials
from everturn.core.clock import Clock
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal, Role
from ingress.auth.api_keys import is_secret_of, try_read_key_text
from ingress.auth.callers import Caller, Proof, is_user_name
from ingress.errors import ProblemError, unauthorized

_log = structlog.get_logger(__name__)

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")

MAX_AGE_S = 15.0
"""The maximum age of an answer, counted from when its load began: a revocation takes effect everywhere within it."""
ASK_TIMEOUT_S = 1.0
"""Events don't wait longer than this for a recheck; if it can't be completed, the caller stays until the next one."""
_BAD_KEY = "The API key is invalid."


class FreshCache(Generic[Question, Answer]):
    """A cache with a maximum age and a maximum number of entries.

    Owns its answers; only `get` changes them. The age of an answer counts from when its load began.
    """

    def __init__(
        self,
        load: Callable[[Question], Awaitable[Answer]],
        *,
        monotonic: Callable[[], float],
        max_age_s: float,
        max_entries: int = 10_000,
    ) -> None:
        self._load = load
        self._monotonic = monotonic
        self._max_age_s = max_age_s
        self._max_entries = max_entries
        self._kept: OrderedDict[Question, tuple[float, Answer]] = OrderedDict()

    async def get(self, question: Question) -> Answer:
        """Return the answer; errors of the load are raised to the caller and not cached."""
        kept = self._kept.get(question)
        now = self._monotonic()
        if kept is not None and kept[0] > now:
            return kept[1]
        answer = await self._load(question)
        self._kept[question] = (now + self._max_age_s, answer)
        self._kept.move_to_end(question)
        while len(self._kept) > self._max_entries:
            self._kept.popitem(last=False)
        return answer


class RevocationChecker:
    """Checks API keys and revocations in the database, with a short-lived cache."""

    def __init__(self, credentials: Credentials, clock: Clock, *, max_age_s: float = MAX_AGE_S) -> None:
        self._clock = clock
        self._keys: FreshCache[str, ApiKey | None] = FreshCache(
            credentials.find_key, monotonic=clock.monotonic, max_age_s=max_age_s
        )
        self._cutoffs: FreshCache[Principal, datetime | None] = FreshCache(
            credentials.find_cutoff, monotonic=clock.monotonic, max_age_s=max_age_s
        )

    async def load_key_caller(self, text: str) -> Caller:
        """The owner of an API key. Raises 401 for one that is unknown, revoked or expired; Unavailable."""
        presented = try_read_key_text(text)
        if presented is None:
            raise unauthorized(_BAD_KEY)
        key = await self._keys.get(presented.key_id)
        known = is_secret_of(presented, key.secret_hash if key else None)
        if key is None or not known or not self._is_valid(key):
            raise unauthorized(_BAD_KEY)
        if not is_user_name(key.owner.user_id) or not key.owner.roles - {Role.ANONYMOUS}:
            raise unauthorized(_BAD_KEY)
        expires_at = key.expires_at.timestamp() if key.expires_at else None
        return Caller(key.owner, expires_at, Proof("key", key.created_at.timestamp(), key.key_id))

    async def check(self, caller: Caller) -> None:
        """Raises 401 if the caller's key, or all its credentials up to a cutoff, were revoked meanwhile;
        Unavailable."""
        proof = caller.proof
        if proof.kind == "local":
            return
        if proof.kind == "key":
            key = await self._keys.get(proof.key_id)
            if key is None or not self._is_valid(key):
                raise unauthorized(_BAD_KEY)
        cutoff = await self._cutoffs.get(_person(caller.principal))
        # Token times are whole seconds, so a token issued in the same second as the cutoff may be older than it.
        if cutoff is not None and (proof.issued_at is None or proof.issued_at <= cutoff.timestamp()):
            raise unauthorized("The credential was revoked.")

    def _is_valid(self, key: ApiKey) -> bool:
        return key.revoked_at is None and (key.expires_at is None or key.expires_at > self._clock.now())


def _person(principal: Principal) -> Principal:
    """The principal without its roles, which are no part of its identity."""
    return Principal(principal.tenant, principal.project, principal.user_id, frozenset())


@dataclass(frozen=True, slots=True)
class Recheck:
    """How the streams and sockets of a process recheck: `check` raises a problem for a caller who would be rejected
    now."""

    check: Callable[[Caller], Awaitable[None]]
    every_s: float
    monotonic: Callable[[], float]

    def begin(self, caller: Caller) -> "CallerCheck":
        """Start the rechecks of a caller whose stream or socket opens now."""
        return CallerCheck(partial(self.check, caller), every_s=self.every_s, monotonic=self.monotonic)


class CallerCheck:
    """Owns the time of the next recheck of one caller."""

    def __init__(
        self, recheck: Callable[[], Awaitable[None]], *, every_s: float, monotonic: Callable[[], float]
    ) -> None:
        """`recheck` raises a problem for a caller who would be rejected now."""
        self._recheck = recheck
        self._every_s = every_s
        self._monotonic = monotonic
        self._due = monotonic() + every_s

    @property
    def is_due(self) -> bool:
        return self._monotonic() >= self._due

    async def try_refusal(self) -> ProblemError | None:
        """Return why the caller must be disconnected; None while it may stay, and when no recheck is due."""
        if not self.is_due:
            return None
        self._due = self._monotonic() + self._every_s
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self._recheck()
        except ProblemError as refusal:
            _log.info("The caller of a stream lost its access", why=refusal.detail)
            return refusal
        except (Unavailable, TimeoutError) as error:
            _log.info("Could not recheck the caller of a stream", error=str(error))
        return None

"""Guests: people without an account, each a user of its own, where the settings let them in."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from everturn.model.identity import Principal, Role
from everturn.model.limits.bucket_table import BucketTable
from everturn.model.limits.token_bucket import Limit
from everturn.ports.clock import Clock
from ingress.auth.callers import Caller, Proof, build_record, read_record
from ingress.auth.seals import Seals
from ingress.errors import absent, forbidden, too_many, unauthorized

GUEST_S = 30 * 86_400
"""How long a guest comes back to its conversations with its token."""
GUEST_PREFIX = "guest~"
"""Begins the user names of guests; no other credential may name such a user."""
GUEST_TOKEN = "evg_"  # noqa: S105 - it begins tokens, and is none
WINDOW_S = 60.0

Scope = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GuestPass:
    """A guest's token and user name, and until when (Unix time) it is good."""

    token: str
    user_id: str
    expires_at: float


class Guests:
    """Makes guests and knows them again. Owns the count of those made within the last minute by this process.

    `scopes` are the tenants and projects that take guests; with none there are no guests, and no guest token is good.
    """

    def __init__(
        self,
        seals: Seals,
        clock: Clock,
        *,
        scopes: frozenset[Scope] = frozenset(),
        per_minute: int = 60,
        per_minute_of_address: int = 60,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._seals = seals
        self._clock = clock
        self._scopes = scopes
        self._per_minute = per_minute
        self._entropy = entropy
        self._window = (0.0, 0)
        self._of_address = Limit(per_minute_of_address, int(WINDOW_S))
        self._addresses = BucketTable(monotonic=clock.monotonic)

    def check_open(self, tenant: str, project: str) -> None:
        """Raises 403 where nobody comes in as a guest, 404 for other scopes."""
        if not self._scopes:
            raise forbidden("This server does not accept guests.")
        if (tenant, project) not in self._scopes:
            raise absent()

    def admit(self, tenant: str, project: str, address: str = "") -> GuestPass:
        """A new guest. Raises what `check_open` does, and 429 when too many came."""
        self.check_open(tenant, project)
        self._check_address(address)
        self._count()
        now = self._clock.now().timestamp()
        who = Principal(tenant, project, GUEST_PREFIX + self._entropy(16).hex(), frozenset({Role.ANONYMOUS}))
        caller = Caller(who, now + GUEST_S, Proof("guest", issued_at=now))
        return GuestPass(self._seals.build(GUEST_TOKEN, build_record(caller)), who.user_id, now + GUEST_S)

    def check(self, token: str) -> Caller:
        """The guest with this token. Raises 401, also where guests were let in once and are not any more."""
        record = self._seals.try_read(GUEST_TOKEN, token)
        if record is None or (record["tenant"], record["project"]) not in self._scopes:
            raise unauthorized("The guest token is invalid.")
        if record["until"] <= self._clock.now().timestamp():
            raise unauthorized("The guest token has expired.")
        return read_record(record)

    def takes(self, principal: Principal) -> bool:
        """Whether guests may still be where this one came in."""
        return (principal.tenant, principal.project) in self._scopes

    def _check_address(self, address: str) -> None:
        """One address, which may be as many guests as it likes, does not use up all places."""
        draw = self._addresses.draw(address, self._of_address)
        if not draw.taken:
            raise too_many(
                "Too many guests were created from this address.", retry_after_s=max(1, math.ceil(draw.wait_s))
            )

    def _count(self) -> None:
        began, made = self._window
        now = self._clock.monotonic()
        if made == 0 or now - began >= WINDOW_S:
            began, made = now, 0
        if made >= self._per_minute:
            raise too_many(
                "Too many guests were created at once.", retry_after_s=max(1, int(began + WINDOW_S - now) + 1)
            )
        self._window = (began, made + 1)

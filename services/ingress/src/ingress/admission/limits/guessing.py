"""Bad credentials are few by address, so that guessing is slow; whoever has a good one is not held up by others.

Each process counts for itself: a guess is to be slow, not counted exactly. Behind a proxy all clients have one address;
there a credential that this process has found good within the hour still passes, and a new one waits.
"""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager

from everturn.model.limits.bucket_table import BucketTable
from everturn.model.limits.token_bucket import Limit
from ingress.admission.metrics import IngressMetrics
from ingress.errors import ProblemError, too_many

KNOWN_MAX = 10_000
KNOWN_S = 3600.0


class CredentialGuard:
    """Owns the buckets of addresses, and the hashes of credentials that were good."""

    def __init__(self, limit: Limit | None, *, metrics: IngressMetrics, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._metrics = metrics
        self._monotonic = monotonic
        self._failures = BucketTable(monotonic=monotonic)
        self._known: OrderedDict[bytes, float] = OrderedDict()

    @contextmanager
    def watching(self, address: str, credential: str) -> Generator[None]:
        """Around one check of a credential, which may be empty: then nothing is guessed. Raises a 429 problem."""
        if self._limit is None or not credential:
            yield
            return
        digest = hashlib.sha256(credential.encode()).digest()
        if not self._is_known(digest):
            self._check(address, self._limit)
        try:
            yield
        except ProblemError as refusal:
            if refusal.status_code == 401:
                self._known.pop(digest, None)
                self._failures.draw(address, self._limit)
            raise
        self._keep(digest)

    def _check(self, address: str, limit: Limit) -> None:
        draw = self._failures.look(address, limit)
        if not draw.taken:
            self._metrics.refusals.labels(reason="credentials", role="none").inc()
            wait_s = max(1, math.ceil(draw.wait_s))
            raise too_many("Too many invalid credentials were sent from this address.", retry_after_s=wait_s)

    def _is_known(self, digest: bytes) -> bool:
        return self._known.get(digest, -math.inf) > self._monotonic()

    def _keep(self, digest: bytes) -> None:
        self._known.pop(digest, None)
        self._known[digest] = self._monotonic() + KNOWN_S
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

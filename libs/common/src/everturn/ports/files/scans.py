"""Scanning stored files again: which were scanned by older signatures, and taking away those that are infected now."""

from dataclasses import dataclass
from typing import Protocol

from everturn.model.ids import ArtifactId

REVOKED = "revoked"
"""How the verdict of a file begins whose object is deleted."""
MAX_TARGETS = 500
"""Rows that one call gives at most."""


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """A stored file. `revoked` ones are refused to readers already, and their objects are still to be deleted."""

    id: ArtifactId
    object_key: str
    size: int
    verdict: str
    revoked: bool = False


class Scans(Protocol):
    """An operator's view across tenants. Raises Unavailable."""

    async def load_outdated(self, verdict: str | None, *, after: str = "", limit: int = 100) -> tuple[ScanTarget, ...]:
        """Files with another verdict than this (all for None) whose ids come after `after`, by id; at most MAX_TARGETS.

        Those whose object is gone with them are left out.
        """
        ...

    async def load(self, artifact_id: ArtifactId) -> ScanTarget:
        """One file. Raises NotFound, also for one that was taken away wholly."""
        ...

    async def save_verdict(self, object_key: str, verdict: str) -> None:
        """What all files of this object are from now on."""
        ...

    async def revoke(self, object_key: str) -> int:
        """From now on nobody reads the files of this object. Returns how many files there were."""
        ...

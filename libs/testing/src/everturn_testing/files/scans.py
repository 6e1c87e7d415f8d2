"""Verdicts of stored files in memory."""

from collections.abc import Iterator

from everturn.core.errors import NotFound
from everturn.core.ids import ArtifactId
from everturn.files.model import Artifact
from everturn.files.ports import MAX_TARGETS, REVOKED, ScanTarget
from everturn_testing.in_memory_platform import MemoryPlatform


class MemoryScans:
    """Implements Scans."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform

    async def load_outdated(self, verdict: str | None, *, after: str = "", limit: int = 100) -> tuple[ScanTarget, ...]:
        there = sorted((target for target in self._targets() if target.id > after), key=lambda target: target.id)
        old = [target for target in there if target.revoked or target.verdict != verdict]
        return tuple(old[: min(limit, MAX_TARGETS)])

    async def load(self, artifact_id: ArtifactId) -> ScanTarget:
        for target in self._targets():
            if target.id == artifact_id:
                return target
        raise NotFound(artifact_id)

    async def save_verdict(self, object_key: str, verdict: str) -> None:
        for row in self._platform.conversations.values():
            row.artifacts[:] = [
                one.model_copy(update={"verdict": verdict}) if one.object_key == object_key else one
                for one in row.artifacts
            ]

    async def revoke(self, object_key: str) -> int:
        self._platform.revoked.add(object_key)
        return sum(artifact.object_key == object_key for artifact in self._artifacts())

    def _targets(self) -> Iterator[ScanTarget]:
        for one in self._artifacts():
            revoked = one.object_key in self._platform.revoked
            if not (one.removed or (revoked and one.verdict.startswith(REVOKED))):
                yield ScanTarget(one.id, one.object_key, one.size, one.verdict, revoked)

    def _artifacts(self) -> Iterator[Artifact]:
        for row in self._platform.conversations.values():
            yield from row.artifacts

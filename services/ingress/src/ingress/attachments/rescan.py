"""Scanning stored files again with newer signatures, and revoking infected ones."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import structlog

from everturn.core.errors import NotFound, Unavailable
from everturn.core.ids import ArtifactId
from everturn.files.objects import Objects
from everturn.files.ports import REVOKED, Scans, ScanTarget
from ingress.attachments.antivirus import NOT_SCANNED, Antivirus, Infected, Unscannable

_log = structlog.get_logger(__name__)

PAGE = 100


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of files by result. `unscannable` ones are kept; `missing` ones have no object."""

    clean: int = 0
    revoked: int = 0
    unscannable: int = 0
    missing: int = 0


class Rescan:
    """Operator actions on stored files. The next run completes an interrupted one."""

    def __init__(self, scans: Scans, objects: Objects, antivirus: Antivirus) -> None:
        self._scans = scans
        self._objects = objects
        self._antivirus = antivirus

    async def run(self, *, everything: bool) -> Tally:
        """Scan files without the current verdict, or all. Raises Unavailable, possibly in the middle."""
        present = await self._antivirus.load_verdict()
        if present == NOT_SCANNED:
            raise Unavailable("No virus scanner is configured: set CLAMD_URL.")
        tally = Tally()
        async for target in self._walk(None if everything else present):
            name = await self._scan(target)
            tally = replace(tally, **{name: getattr(tally, name) + 1})
        return tally

    async def revoke(self, artifact_id: ArtifactId, reason: str) -> int:
        """Revoke one file and all that share its object; returns their number. Raises NotFound."""
        return await self._revoke(await self._scans.load(artifact_id), reason)

    async def _walk(self, verdict: str | None) -> AsyncIterator[ScanTarget]:
        after = ""
        while page := await self._scans.load_outdated(verdict, after=after, limit=PAGE):
            after = page[-1].id
            for target in page:
                yield target

    async def _scan(self, target: ScanTarget) -> str:
        if target.revoked:
            await self._revoke(target, "before")
            return "revoked"
        try:
            data = await self._objects.load(target.object_key, max_bytes=target.size)
            await self._scans.save_verdict(target.object_key, await self._antivirus.scan(data))
        except NotFound:
            _log.warning("A file has no object", artifact=target.id)
            return "missing"
        except Unscannable as error:
            _log.warning("Could not scan a stored file", artifact=target.id, fault=str(error))
            return "unscannable"
        except Infected as error:
            await self._revoke(target, str(error))
            return "revoked"
        return "clean"

    async def _revoke(self, target: ScanTarget, reason: str) -> int:
        """Block reads first, then delete the object, then save the verdict; a later run completes an interrupted
        sequence."""
        count = await self._scans.revoke(target.object_key)
        await self._objects.delete([target.object_key])
        await self._scans.save_verdict(target.object_key, f"{REVOKED}: {reason}")
        _log.warning("Revoked a stored file", artifact=target.id, files=count, reason=reason)
        return count

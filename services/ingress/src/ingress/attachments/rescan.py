"""Scanning stored files again with newer signatures, and taking away those that are infected."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import structlog

from everturn.core.errors import NotFound, Unavailable
from everturn.core.ids import ArtifactId
from everturn.files.objects import Objects
from everturn.files.ports import REVOKED, Scans, ScanTarget
from ingress.attachments.antivirus import NOT_SCANNED, Antivirus, Infected, Unscannable

PAGE = 100
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many files were found to be what. `unscannable` ones are kept; `missing` ones have no object."""

    clean: int = 0
    revoked: int = 0
    unscannable: int = 0
    missing: int = 0


class Rescan:
    """What an operator does with stored files. A run that was ended anywhere is finished by the next one."""

    def __init__(self, scans: Scans, objects: Objects, antivirus: Antivirus) -> None:
        self._scans = scans
        self._objects = objects
        self._antivirus = antivirus

    async def run(self, *, everything: bool) -> Tally:
        """Scan files whose verdict is not the present one, or all. Raises Unavailable, also in the middle."""
        present = await self._antivirus.load_verdict()
        if present == NOT_SCANNED:
            raise Unavailable("There is no antivirus: set CLAMD_URL.")
        tally = Tally()
        async for target in self._walk(None if everything else present):
            name = await self._look(target)
            tally = replace(tally, **{name: getattr(tally, name) + 1})
        return tally

    async def revoke(self, artifact_id: ArtifactId, reason: str) -> int:
        """Take one file away, with all that share its object. Returns how many. Raises NotFound."""
        return await self._take_away(await self._scans.load(artifact_id), reason)

    async def _walk(self, verdict: str | None) -> AsyncIterator[ScanTarget]:
        after = ""
        while page := await self._scans.load_outdated(verdict, after=after, limit=PAGE):
            after = page[-1].id
            for target in page:
                yield target

    async def _look(self, target: ScanTarget) -> str:
        if target.revoked:
            await self._take_away(target, "before")
            return "revoked"
        try:
            data = await self._objects.load(target.object_key, max_bytes=target.size)
            await self._scans.save_verdict(target.object_key, await self._antivirus.scan(data))
        except NotFound:
            _log.warning("file without its object", artifact=target.id)
            return "missing"
        except Unscannable as error:
            _log.warning("stored file can't be scanned", artifact=target.id, fault=str(error))
            return "unscannable"
        except Infected as error:
            await self._take_away(target, str(error))
            return "revoked"
        return "clean"

    async def _take_away(self, target: ScanTarget, reason: str) -> int:
        """First nobody reads it, then it is gone, then its verdict says so; a later run does what is missing."""
        count = await self._scans.revoke(target.object_key)
        await self._objects.delete([target.object_key])
        await self._scans.save_verdict(target.object_key, f"{REVOKED}: {reason}")
        _log.warning("stored file revoked", artifact=target.id, files=count, reason=reason)
        return count

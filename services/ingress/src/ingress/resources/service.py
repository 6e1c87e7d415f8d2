"""Files by their rows: what a client gets of them, and what happens when the store gives something else."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import structlog
from fastapi import Request
from starlette.types import Receive, Scope, Send

from everturn.errors import EverturnError
from everturn.model.artifacts import Artifact, Rn
from everturn.model.identity import Principal
from everturn.model.ids import ArtifactId
from everturn.ports.artifacts import Artifacts
from everturn.ports.objects import AlteredObject, Objects
from ingress.admission.metrics import IngressMetrics
from ingress.admission.slots import HeldResponse
from ingress.resources.disposition import build_disposition, content_type
from ingress.resources.ranges import Slice

SIGNED_S = 60
"""How long a signed URL is good: long enough to follow it, too short to hand it around."""

_log = structlog.get_logger(__name__)


class FileService:
    """Finds files by their rows and reads their objects. With `redirects` clients fetch them from the store."""

    def __init__(
        self, artifacts: Artifacts, objects: Objects, *, metrics: IngressMetrics, redirects: bool = False
    ) -> None:
        self._artifacts = artifacts
        self._objects = objects
        self._metrics = metrics
        self._redirects = redirects

    async def load(self, principal: Principal, artifact_id: ArtifactId) -> Artifact:
        """The row of one of the caller's files."""
        return await self._artifacts.load(principal, artifact_id)

    async def load_by_rn(self, principal: Principal, rn: Rn) -> Artifact:
        """The row of the caller's file with this rn."""
        return await self._artifacts.load_by_rn(principal, rn)

    async def try_redirect(self, artifact: Artifact, *, download: bool) -> str | None:
        """A signed URL of the file, with our type and disposition in it; None where we send the file ourselves.

        A store answers with these two headers only: neither nosniff nor a policy stands beside them.
        """
        if not self._redirects:
            return None
        return await self._objects.try_presign(
            artifact.object_key,
            content_type=content_type(artifact.mime),
            disposition=build_disposition(artifact.filename, artifact.mime, download=download, guarded=False),
            lifetime_s=SIGNED_S,
        )

    async def open(self, artifact: Artifact, piece: Slice) -> AsyncIterator[bytes]:
        """The bytes of a file; errors of the store show before the response begins, where they show with its start.

        A whole file is checked: what is altered breaks off before its end. A part is what the store has.
        """
        key, size = artifact.object_key, artifact.size
        if piece == Slice(0, size):
            found = self._objects.load_stream(key)
        else:
            found = self._objects.load_range(key, start=piece.start, end=piece.end)
        chunks = _exactly(key, found, piece.end - piece.start)
        try:
            first = await anext(chunks, b"")
        except EverturnError as error:
            self.note(error, artifact)
            raise
        return self._rest(artifact, first, chunks)

    def note(self, error: EverturnError, artifact: Artifact) -> None:
        """Count a file that could not be read, and name an altered one in the log."""
        reason = "altered" if isinstance(error, AlteredObject) else "store"
        self._metrics.unread_files.labels(reason=reason).inc()
        _log.error("a file could not be read", artifact_id=artifact.id, reason=reason, error=str(error))

    async def _rest(self, artifact: Artifact, first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
        async with aclosing(chunks):
            yield first
            try:
                async for chunk in chunks:
                    yield chunk
            except EverturnError as error:
                self.note(error, artifact)
                raise


async def _exactly(key: str, chunks: AsyncGenerator[bytes], size: int) -> AsyncGenerator[bytes]:
    """Pass so many bytes on, those that complete them when the store has said that there are no more and all is right.

    Raises AlteredObject for more or fewer.
    """
    left, held = size, b""
    async with aclosing(chunks):
        async for chunk in chunks:
            left -= len(chunk)
            if left < 0:
                raise AlteredObject(key)
            if left:
                yield chunk
            else:
                held = chunk
    if left:
        raise AlteredObject(key)
    if held:
        yield held


class CuttingResponse(HeldResponse):
    """Breaks off when its content does: the client sees fewer bytes than were announced, never a wrong whole."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except EverturnError:
            # It is noted already. Without the last chunk the server closes the connection.
            return


def file_service(request: Request) -> FileService:
    """The service of this application."""
    return cast(FileService, request.app.state.files)

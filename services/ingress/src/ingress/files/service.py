"""Serves stored files, whole or in ranges, with headers that never let a browser treat one as a page of this server."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast
from urllib.parse import quote

import structlog
from fastapi import Request
from starlette.types import Receive, Scope, Send

from everturn.core.errors import EverturnError
from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId
from everturn.files.model import Artifact, Rn
from everturn.files.objects import AlteredObject, Objects
from everturn.files.ports import Artifacts
from ingress.admission.slots import HeldResponse
from ingress.metrics import IngressMetrics

_log = structlog.get_logger(__name__)

SANDBOX_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"

_INLINE_FILES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"})
"""Types that a browser shows without running any of their content."""
_INLINE_TEXT = "text/plain"
"""Also shown, except under a name that makes programs run the text; everything else is a download."""
_ACTIVE_NAMES = (".htm", ".html", ".xhtml", ".xht", ".shtml", ".mht", ".mhtml", ".eml", ".svg", ".xml", ".xsl", ".xslt")
_ATTR_CHARS = "!#$&+-.^_`|~"
"""RFC 8187 attr-char, in addition to letters and digits."""

_ONE_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII | re.IGNORECASE)

_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')

SIGNED_S = 60
"""How long a signed URL is valid: long enough to follow it, too short to share it."""


def content_type(mime: str) -> str:
    """The Content-Type header; text is UTF-8 unless its type names another encoding."""
    return f"{mime}; charset=utf-8" if mime.startswith("text/") and ";" not in mime else mime


def build_disposition(filename: str, mime: str, *, download: bool, guarded: bool = True) -> str:
    """The Content-Disposition of RFC 6266: the name in ASCII, and also by RFC 8187 if ASCII changes it.

    A response that is not `guarded` lacks this server's nosniff header, so its texts are downloads.
    """
    base = mime.partition(";")[0].strip()
    shows_text = base == _INLINE_TEXT and guarded and not filename.lower().endswith(_ACTIVE_NAMES)
    kind = "inline" if (base in _INLINE_FILES or shows_text) and not download else "attachment"
    plain = "".join(char if " " <= char <= "~" and char not in '"\\%' else "_" for char in filename)
    extended = "" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe=_ATTR_CHARS)}"
    return f'{kind}; filename="{plain}"{extended}'


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes from `start` up to, but not including, `end`."""

    start: int
    end: int


class NotSatisfiable(Exception):
    """The range begins behind the end of the file (416)."""


def try_read_range(header: str | None, size: int) -> Slice | None:
    """The requested range; None means the whole file. Raises NotSatisfiable."""
    match = _ONE_RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < int(first):
            return None
    if start >= size or start >= end:
        raise NotSatisfiable()
    return Slice(start, end)


def has_tag(headers: Iterable[str], tag: str) -> bool:
    """Whether `If-None-Match`, which can be a list, weak or `*`, contains the tag, by weak comparison."""
    listed = ",".join(headers).strip()
    return listed == "*" or tag in _TAG.findall(listed)


class FileService:
    """Finds files by their rows and reads their objects. With `redirects`, clients fetch them from the store."""

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
        """A signed URL of the file, with its type and disposition; None when this server sends the file itself.

        A store sends only these two headers: neither nosniff nor a policy.
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
        """The bytes of a file. Store errors at its start are raised here, before the response begins.

        A whole file is verified: an altered one is cut off before its end. Of a range, only a store in a folder
        verifies the file first.
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
        """Count a file that could not be read, and log its id."""
        reason = "altered" if isinstance(error, AlteredObject) else "store"
        self._metrics.unread_files.labels(reason=reason).inc()
        _log.error("Could not read a file", artifact_id=artifact.id, reason=reason, error=str(error))

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
    """Yield exactly `size` bytes; the last chunk only after the store has confirmed the end of the object.

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
    """Stops when its content fails: the client gets fewer bytes than announced, never a complete wrong file."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except EverturnError:
            # The error is already logged. Without the last chunk the server closes the connection.
            return


async def file_service(request: Request) -> FileService:
    """The service of this application."""
    return cast(FileService, request.app.state.files)

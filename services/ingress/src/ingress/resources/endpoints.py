"""Files: the content of attachments and of what turns produced."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from everturn.model.artifacts import Artifact
from everturn.model.identity import Principal
from everturn.model.ids import ArtifactId
from everturn.model.problems import problem
from everturn.ports.artifacts import Artifacts
from everturn.ports.objects import Objects
from ingress.admission.paths import ArtifactPath
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.errors import ProblemError
from ingress.resources.disposition import SANDBOX_POLICY, build_disposition, content_type
from ingress.resources.ranges import NotSatisfiable, Slice, try_read_range

router = APIRouter(prefix="/files/{tenant}/{project}", route_class=AdmittedRoute, tags=["files"])
_CONTENT: dict[str, Any] = {
    "description": "The content.",
    "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
}


class FileService:
    """Finds files by their rows and reads their objects."""

    def __init__(self, artifacts: Artifacts, objects: Objects) -> None:
        self._artifacts = artifacts
        self._objects = objects

    async def load(self, principal: Principal, artifact_id: ArtifactId) -> Artifact:
        """The row of one of the caller's files."""
        return await self._artifacts.load(principal, artifact_id)

    async def open(self, artifact: Artifact, piece: Slice) -> AsyncIterator[bytes]:
        """The bytes of a file; errors of the store show before the response begins."""
        chunks = self._objects.load_range(artifact.object_key, start=piece.start, end=piece.end)
        first = await anext(chunks, b"")

        async def rest() -> AsyncIterator[bytes]:
            yield first
            async for chunk in chunks:
                yield chunk

        return rest()


def file_service(request: Request) -> FileService:
    """The service of this application."""
    return cast(FileService, request.app.state.files)


@router.get(
    "/{artifact_id}",
    response_class=Response,
    responses={**problems(416), 200: _CONTENT, 206: {**_CONTENT, "description": "The range asked for."}},
)
async def get_file(
    request: Request,
    me: Me,
    files: Annotated[FileService, Depends(file_service)],
    artifact_id: ArtifactPath,
    download: Annotated[str | None, Query(description="Present: as a download, whatever the type.")] = None,
) -> Response:
    """A file's content. One byte range is served; types that could run in a browser come as downloads."""
    artifact = await files.load(me, artifact_id)
    headers = _build_headers(artifact, download=download is not None)
    tag = headers["ETag"]
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    asked = request.headers.get("range") if request.headers.get("if-range", tag) == tag else None
    piece = _read_range(asked, artifact.size)
    if piece is None:
        status, piece = 200, Slice(0, artifact.size)
    else:
        status = 206
        headers["Content-Range"] = f"bytes {piece.start}-{piece.end - 1}/{artifact.size}"
    headers["Content-Length"] = str(piece.end - piece.start)
    return StreamingResponse(await files.open(artifact, piece), status_code=status, headers=headers)


def _build_headers(artifact: Artifact, *, download: bool) -> dict[str, str]:
    return {
        "Content-Type": content_type(artifact.mime),
        "Content-Disposition": build_disposition(artifact.filename, artifact.mime, download=download),
        "Content-Security-Policy": SANDBOX_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "private, no-cache",
        "Accept-Ranges": "bytes",
        "ETag": f'"{artifact.sha256}"',
    }


def _read_range(header: str | None, size: int) -> Slice | None:
    try:
        return try_read_range(header, size)
    except NotSatisfiable as error:
        answer = problem("range", "The range lies outside the file", 416, f"The file has {size} bytes.")
        raise ProblemError(answer, headers={"Content-Range": f"bytes */{size}"}) from error

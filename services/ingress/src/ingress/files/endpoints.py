"""Downloads of files by id, and by their rn: a file's permanent address in events, fetches and exports."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import Field

from everturn.core.api_model import ApiModel
from everturn.core.errors import Invalid, problem
from everturn.events.turn_view import build_file_view
from everturn.files.model import Artifact, Rn, parse_rn
from ingress.admission.route import AdmittedRoute, BodyScopedRoute
from ingress.admission.slots import OpenSlots, download_slots
from ingress.auth.gate import Me, MeInBody
from ingress.errors import ProblemError, unprocessable
from ingress.fields import ArtifactPath
from ingress.files.service import (
    SANDBOX_POLICY,
    CuttingResponse,
    FileService,
    NotSatisfiable,
    Slice,
    build_disposition,
    content_type,
    file_service,
    has_tag,
    try_read_range,
)
from ingress.openapi.responses import problems

MAX_RN_CHARS = 8192
_EXAMPLE = (
    "ef:default:default:chatbot:upload:ann:conv_01890a5d-ac96-774b-bcce-b302099a8057"
    ":turn_01890a5d-ac96-774b-bcce-b302099a8058:attachment:turn_01890a5d-ac96-774b-bcce-b302099a8058/attachments/a.csv"
)

router = APIRouter(prefix="/files/{tenant}/{project}", route_class=AdmittedRoute, tags=["files"])
CONTENT: dict[str, Any] = {
    "description": "The content.",
    "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
}

_REDIRECT: dict[str, Any] = {
    "description": "The file is at `Location` for a minute; only on servers with `FILES_REDIRECT=1`.",
    "headers": {"Location": {"schema": {"type": "string", "format": "uri"}}},
}
Files = Annotated[FileService, Depends(file_service)]
Download = Annotated[str | None, Query(description="If present, the file is sent as a download, whatever its type.")]

Slots = Annotated[OpenSlots, Depends(download_slots)]


class ByRnIn(ApiModel):
    """The file to find."""

    rn: str = Field(max_length=MAX_RN_CHARS, examples=[_EXAMPLE])
    """The resource name of the file."""


class FoundFileOut(ApiModel):
    """A file and the path of its content. `size` is in bytes, `url` is a path on this server."""

    artifact_id: str
    """The file's id; `GET /files/{tenant}/{project}/{artifact_id}` has its bytes."""
    filename: str
    """The name of the file."""
    mime: str
    size: int
    """Its size in bytes."""
    url: str
    """The path of its content on this server."""


class RnRoute(BodyScopedRoute):
    """Reads tenant and project from the rn."""

    def read_scope(self, body: Any) -> tuple[str, str]:
        rn = _read_rn(cast(Mapping[str, Any], body).get("rn") if isinstance(body, dict) else None)
        return rn.tenant, rn.project


by_rn_router = APIRouter(route_class=RnRoute, tags=["files"])


@by_rn_router.post("/by-rn", responses=problems(408, 413, 415))
async def find_by_rn(me: MeInBody, files: Annotated[FileService, Depends(file_service)], body: ByRnIn) -> FoundFileOut:
    """The caller's file with this rn. Files of others get the same 404 as files that don't exist."""
    artifact = await files.load_by_rn(me, _read_rn(body.rn))
    view = build_file_view(artifact, tenant=me.tenant, project=me.project)
    return FoundFileOut(
        artifact_id=view.artifact_id, filename=view.filename, mime=view.mime, size=view.size, url=view.url
    )


def _read_rn(text: object) -> Rn:
    """Parse an rn. Raises a 422 problem that names the field."""
    try:
        if not isinstance(text, str):
            raise Invalid("It must be a string.")
        return parse_rn(text)
    except Invalid as error:
        raise unprocessable("The rn is malformed.", errors=[{"field": "rn", "message": error.detail}]) from error


@router.get(
    "/{artifact_id}",
    response_class=Response,
    responses={
        **problems(410, 416, 502),
        200: CONTENT,
        206: {**CONTENT, "description": "The requested range."},
        304: {"description": "The file has not changed since the ETag in If-None-Match; there is no body."},
        307: _REDIRECT,
    },
)
async def get_file(
    *,
    request: Request,
    me: Me,
    files: Files,
    slots: Slots,
    artifact_id: ArtifactPath,
    download: Download = None,
) -> Response:
    """A file's content. A single byte range is supported; types that a browser could run are sent as downloads.

    A whole file is checked against its hash: if it was altered, the response is a 502, or ends early if the file is
    large. A range is checked only if the store is a folder.
    """
    artifact = await files.load(me, artifact_id)
    headers, piece = read_request(request, artifact, download=download is not None)
    if piece is None:
        return Response(status_code=304, headers=headers)
    # Fetches by a page stay on this origin: its policy forbids others, and few buckets send CORS headers.
    is_pages = request.headers.get("sec-fetch-mode") == "cors"
    if not is_pages and (url := await files.try_redirect(artifact, download=download is not None)):
        return Response(status_code=307, headers={"Location": url, "Cache-Control": "no-store"})
    status = 206 if "Content-Range" in headers else 200
    with slots.until_handed_over(me):
        content = await files.open(artifact, piece)
        return CuttingResponse(content, slots=slots, principal=me, status_code=status, headers=headers)


@router.head("/{artifact_id}", include_in_schema=False)
async def head_file(
    request: Request, me: Me, files: Files, artifact_id: ArtifactPath, download: Download = None
) -> Response:
    """The headers of GET, from the file's row; the store is not queried."""
    headers, piece = read_request(request, await files.load(me, artifact_id), download=download is not None)
    if piece is None:
        return Response(status_code=304, headers=headers)
    return Response(status_code=206 if "Content-Range" in headers else 200, headers=headers)


def read_request(request: Request, artifact: Artifact, *, download: bool) -> tuple[dict[str, str], Slice | None]:
    """The headers of the response and the requested bytes; None when the client already has them."""
    headers = _build_headers(artifact, download=download)
    tag = headers["ETag"]
    if has_tag(request.headers.getlist("if-none-match"), tag):
        return headers, None
    requested = request.headers.get("range") if request.headers.get("if-range", tag) == tag else None
    piece = _read_range(requested, artifact.size)
    if piece is not None:
        headers["Content-Range"] = f"bytes {piece.start}-{piece.end - 1}/{artifact.size}"
    piece = piece or Slice(0, artifact.size)
    headers["Content-Length"] = str(piece.end - piece.start)
    return headers, piece


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

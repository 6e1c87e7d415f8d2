"""The workspace of a conversation as its turns left it: commits, folders, files and differences."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel

from everturn.files.model import Artifact
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.conversations.endpoints import hold_read
from ingress.fields import ConversationPath
from ingress.files.endpoints import CONTENT, Download, Files, Slots, read_request
from ingress.files.service import CuttingResponse
from ingress.history.schemas import MAX_COMMITS, MAX_PATHS, CommitList, CommitName, DiffOut, FilePath, TreeOut
from ingress.history.service import HistoryService, history_service
from ingress.openapi.responses import problems

_PREFIX = "/conversations/{tenant}/{project}/{conversation_id}/workspace"
router = APIRouter(prefix=_PREFIX, route_class=AdmittedRoute, tags=["workspace"], dependencies=[Depends(hold_read)])
file_router = APIRouter(prefix=_PREFIX, route_class=AdmittedRoute, tags=["workspace"])

Service = Annotated[HistoryService, Depends(history_service)]
_NAME_HELP = "The id of a turn, a commit or at least seven digits of it, or HEAD for the newest commit."
At = Annotated[CommitName, Query(description=_NAME_HELP, examples=["HEAD"])]


@router.get("/commits", responses=problems())
async def list_commits(
    *,
    me: Me,
    service: Service,
    conversation_id: ConversationPath,
    path: Annotated[FilePath | None, Query(description="Only commits that changed this file or folder.")] = None,
    before: Annotated[
        CommitName | None, Query(description="The `next_before` of the previous page, or any turn or commit.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_COMMITS, description="Maximum number of commits on a page.")] = 30,
) -> CommitList:
    """The turns that changed files of the workspace, newest first, each as a commit with its files.

    Turns that have not ended are not among them.
    """
    return await service.load_commits(me, conversation_id, path=path or "", before=before or "", limit=limit)


@router.get("/tree", responses=problems(), response_model=TreeOut)
async def get_tree(
    *,
    me: Me,
    service: Service,
    conversation_id: ConversationPath,
    at: At = "HEAD",
    folder: Annotated[
        FilePath | None, Query(description="The path of the folder; without it, the whole workspace.", examples=["src"])
    ] = None,
) -> Response:
    """The files and folders in one folder of the workspace, as they were after a turn."""
    return await _answer(await service.load_tree(me, conversation_id, at=at, folder=(folder or "").removesuffix("/")))


@router.get("/diff", responses=problems(), response_model=DiffOut)
async def get_diff(
    *,
    me: Me,
    service: Service,
    conversation_id: ConversationPath,
    old: Annotated[
        CommitName | None, Query(alias="from", description=f"{_NAME_HELP} Without it, the commit before `to`.")
    ] = None,
    new: Annotated[CommitName, Query(alias="to", description=_NAME_HELP)] = "HEAD",
    path: Annotated[
        list[FilePath] | None,
        Query(max_length=MAX_PATHS, description="Only this file or folder; can be repeated."),
    ] = None,
) -> Response:
    """What changed in the workspace between two commits. More than 1 MiB of differences is a 422: name some of the
    files then."""
    return await _answer(await service.load_diff(me, conversation_id, old=old, new=new, paths=path or ()))


_FILE: dict[int | str, dict[str, Any]] = {
    **problems(416, 502),
    200: CONTENT,
    206: {**CONTENT, "description": "The requested range."},
    304: {"description": "The file has not changed since the ETag in If-None-Match; there is no body."},
}


@file_router.get("/file", response_class=Response, responses=_FILE)
async def get_workspace_file(
    *,
    request: Request,
    me: Me,
    service: Service,
    files: Files,
    slots: Slots,
    conversation_id: ConversationPath,
    path: Annotated[FilePath, Query(description="The path of the file in the workspace.", examples=["src/report.py"])],
    at: At = "HEAD",
    download: Download = None,
) -> Response:
    """A file of the workspace as it was after a turn. A single byte range is supported. A browser shows texts as plain
    text; types that it could run are sent as downloads."""
    artifact = _as_plain_text(await service.load_file(me, conversation_id, at=at, path=path))
    headers, piece = read_request(request, artifact, download=download is not None)
    if piece is None:
        return Response(status_code=304, headers=headers)
    with slots.until_handed_over(me):
        content = await files.open(artifact, piece)
        status = 206 if "Content-Range" in headers else 200
        return CuttingResponse(content, slots=slots, principal=me, status_code=status, headers=headers)


def _as_plain_text(artifact: Artifact) -> Artifact:
    """The file as a browser may show it: source code is text, whatever it is written in."""
    return artifact.model_copy(update={"mime": "text/plain"}) if artifact.mime.startswith("text/") else artifact


async def _answer(view: BaseModel) -> Response:
    """The view as JSON, serialized in a thread: a megabyte would block the event loop."""
    body = await asyncio.to_thread(lambda: view.model_dump_json(by_alias=True).encode())
    return Response(body, media_type="application/json")

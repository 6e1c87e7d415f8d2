"""Collections: documents that a person keeps for all conversations, and that agents search."""

from typing import Annotated, Any, Literal, cast

import structlog
from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field, StringConstraints

from everturn.core.clock import iso
from everturn.core.errors import EverturnError, Unavailable
from everturn.core.identity import Principal, Role
from everturn.core.ids import ArtifactId, CollectionId, Ids, is_id
from everturn.knowledge.collections import Collection, CollectionBook, CollectionDocument, CollectionScope
from everturn.turns.inbox import Inbox
from ingress.admission.route import AdmittedRequest, AdmittedRoute, SubmitRoute, media_type
from ingress.attachments.intake import CheckedFile, IncomingFile, Intake
from ingress.attachments.multipart import read_files
from ingress.auth.gate import Me
from ingress.bounds import Bounds
from ingress.errors import absent, forbidden, unprocessable, unsupported
from ingress.fields import NOT_BLANK, JsonBody, Line
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

ID_EXAMPLE = "coll_01890a5d-ac96-774b-bcce-b302099a8057"
DOCUMENT_EXAMPLE = "art_01890a5d-ac96-774b-bcce-b302099a8057"
_READABLE = frozenset({"application/pdf", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"})
"""Types whose text can be read, beside texts."""
_SHARING = frozenset({Role.PRIVILEGED, Role.ADMIN})

_PREFIX = "/collections/{tenant}/{project}"
router = APIRouter(prefix=_PREFIX, route_class=AdmittedRoute, tags=["collections"])
upload_router = APIRouter(prefix=_PREFIX, route_class=SubmitRoute, tags=["collections"])

Title = Annotated[Line, StringConstraints(pattern=NOT_BLANK)]


class CollectionIn(JsonBody):
    """A new collection."""

    title: Title = Field(examples=["Contracts"])
    """Its name for people and agents."""
    scope: Literal["user", "project"] = Field(default="user", examples=["user"])
    """Who may read it: its owner, or everybody in the project, which needs the role `privileged` or `admin`."""


class CollectionPatch(JsonBody):
    """The new title of a collection."""

    title: Title = Field(examples=["Contracts 2026"])
    """Its name for people and agents."""


class CollectionOut(JsonBody):
    """A collection that the caller may read."""

    id: str = Field(examples=[ID_EXAMPLE])
    """The collection's id."""
    title: str = Field(examples=["Contracts"])
    """Its name for people and agents."""
    scope: Literal["user", "project"] = Field(examples=["user"])
    """Who may read it: its owner, or everybody in the project."""
    is_mine: bool = Field(examples=[True])
    """Whether the caller owns it, and may change it."""
    created_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])
    documents: int = Field(examples=[12])
    """How many documents it has."""
    waiting: int = Field(examples=[0])
    """How many of them agents can't find yet, because they are being indexed."""
    error: str | None = Field(examples=[None])
    """Why its documents can't be indexed; null if they can."""


class CollectionList(JsonBody):
    """The caller's own collections by title, then those that others share with the project."""

    collections: tuple[CollectionOut, ...]
    """The collections."""


class DocumentOut(JsonBody):
    """A document of a collection."""

    id: str = Field(examples=[DOCUMENT_EXAMPLE])
    """The document's id."""
    name: str = Field(examples=["lease.pdf"])
    """The name of its file, by which agents cite it."""
    media_type: str = Field(examples=["application/pdf"])
    """Its media type."""
    size: int = Field(examples=[182_044])
    """Its size in bytes."""
    added_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])
    """When it was uploaded or replaced, in ISO 8601 and UTC."""
    state: Literal["waiting", "indexed", "failed"] = Field(examples=["indexed"])
    """Whether agents find it: `waiting` until it is indexed, `failed` if its text can't be read."""
    error: str | None = Field(examples=[None])
    """Why its text can't be read; null if it can."""


class DocumentList(JsonBody):
    """Documents of a collection."""

    documents: tuple[DocumentOut, ...]
    """The documents: of a list by name, of an upload in the order of its files."""


class DeletedOut(JsonBody):
    """What was deleted."""

    documents: int = Field(examples=[1])
    """How many documents were deleted."""


class CollectionService:
    """What the caller does with collections."""

    def __init__(self, book: CollectionBook, intake: Intake, inbox: Inbox, ids: Ids) -> None:
        self._book = book
        self._intake = intake
        self._inbox = inbox
        self._ids = ids

    async def load_all(self, me: Principal) -> tuple[Collection, ...]:
        return await self._book.load_all(me)

    async def create(self, me: Principal, title: str, scope: CollectionScope) -> Collection:
        """Raises a 403 problem for guests, and for a shared collection without a role for it; Conflict."""
        if me.roles <= {Role.ANONYMOUS}:
            raise forbidden("Guests can't keep collections.")
        if scope is CollectionScope.PROJECT and not me.roles & _SHARING:
            raise forbidden("A collection of the project needs the role privileged or admin.")
        return await self._book.create(me, self._ids.collection(), title, scope)

    async def rename(self, me: Principal, collection_id: CollectionId, title: str) -> Collection:
        """Raises NotFound."""
        return await self._book.rename(me, collection_id, title)

    async def delete(self, me: Principal, collection_id: CollectionId) -> int:
        """Delete a collection; how many documents it had. Raises NotFound."""
        keys = await self._book.delete(me, collection_id)
        await self._intake.discard_objects(keys)
        return len(keys)

    async def load_documents(self, me: Principal, collection_id: CollectionId) -> tuple[CollectionDocument, ...]:
        """Raises NotFound."""
        return await self._book.load_documents(me, collection_id)

    async def check_owned(self, me: Principal, collection_id: CollectionId) -> None:
        """Raises NotFound for a collection that the caller can't add to."""
        await self._book.check_owned(me, collection_id)

    async def add(
        self, me: Principal, collection_id: CollectionId, files: tuple[IncomingFile, ...]
    ) -> tuple[CollectionDocument, ...]:
        """Check and add documents. Raises problems for bad files, NotFound, Conflict."""
        checked = await self._intake.check_files(me, files)
        for place, file in enumerate(checked):
            _check_readable(file, place)
        saved = await self._intake.save_files(collection_id, checked, await self._inbox.load_now())
        try:
            added = await self._book.add_documents(me, collection_id, saved.uploads)
        except Unavailable:
            # It is unknown whether this was committed. If no row names these objects, workers delete them later.
            _log.warning("An upload to a collection failed but may have been stored", objects=saved.keys())
            raise
        except EverturnError:
            await self._intake.discard(saved)
            raise
        await self._intake.discard_objects(added.unused)
        return added.documents

    async def delete_document(self, me: Principal, collection_id: CollectionId, document_id: ArtifactId) -> None:
        """Raises NotFound."""
        await self._intake.discard_objects([await self._book.delete_document(me, collection_id, document_id)])


def _check_readable(file: CheckedFile, place: int) -> None:
    base = file.mime.partition(";")[0]
    if not base.startswith("text/") and base not in _READABLE:
        message = f"The file {file.name!r} was rejected: collections take texts, PDF and .docx files."
        raise unsupported(message, errors=[{"field": f"files.{place}", "message": message}])


async def collection_service(request: Request) -> CollectionService:
    """The service of this application."""
    return cast(CollectionService, request.app.state.collections)


async def load_collection_id(
    collection_id: Annotated[str, Path(description="The collection's id.", examples=[ID_EXAMPLE])],
) -> CollectionId:
    """A malformed id gets the same 404 as one of another owner."""
    if not is_id(collection_id, "coll"):
        raise absent()
    return CollectionId(collection_id)


async def load_document_id(
    document_id: Annotated[str, Path(description="The document's id.", examples=[DOCUMENT_EXAMPLE])],
) -> ArtifactId:
    """A malformed id gets the same 404 as one of another owner."""
    if not is_id(document_id, "art"):
        raise absent()
    return ArtifactId(document_id)


Service = Annotated[CollectionService, Depends(collection_service)]
DocumentPath = Annotated[ArtifactId, Depends(load_document_id)]
CollectionPath = Annotated[CollectionId, Depends(load_collection_id)]


@router.get("", responses=problems())
async def list_collections(me: Me, service: Service) -> CollectionList:
    """The collections that the caller may read; agents search them in every conversation."""
    return CollectionList(collections=tuple(_build(me, each) for each in await service.load_all(me)))


@router.post("", status_code=201, responses=problems(408, 409, 413, 415))
async def create_collection(body: CollectionIn, me: Me, service: Service) -> CollectionOut:
    """Create a collection."""
    return _build(me, await service.create(me, body.title, CollectionScope(body.scope)))


@router.patch("/{collection_id}", responses=problems(408, 413, 415))
async def patch_collection(
    body: CollectionPatch, me: Me, service: Service, collection_id: CollectionPath
) -> CollectionOut:
    """Rename one of the caller's collections."""
    return _build(me, await service.rename(me, collection_id, body.title))


@router.delete("/{collection_id}", responses=problems())
async def delete_collection(me: Me, service: Service, collection_id: CollectionPath) -> DeletedOut:
    """Delete one of the caller's collections with its documents. Agents don't find them from now on; answers that cite
    them stay."""
    return DeletedOut(documents=await service.delete(me, collection_id))


@router.get("/{collection_id}/documents", responses=problems())
async def list_documents(me: Me, service: Service, collection_id: CollectionPath) -> DocumentList:
    """The documents of a collection."""
    return DocumentList(documents=tuple(map(_build_document, await service.load_documents(me, collection_id))))


_FILES: dict[str, Any] = {
    "type": "object",
    "required": ["files"],
    "properties": {
        "files": {"type": "array", "items": {"type": "string", "contentMediaType": "application/octet-stream"}}
    },
}


@upload_router.post(
    "/{collection_id}/documents",
    status_code=201,
    responses=problems(408, 409, 413, 415),
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FILES}}}},
)
async def add_documents(request: Request, me: Me, service: Service, collection_id: CollectionPath) -> DocumentList:
    """Add documents to one of the caller's collections: texts, PDF and .docx files, as parts named `files`.

    They are checked like the files of messages. A file replaces the one of the same name; with the same content it
    changes nothing. Agents find a document once it is indexed.
    """
    # Before the body is read, and its files are scanned and stored.
    await service.check_owned(me, collection_id)
    admitted = cast(AdmittedRequest, request)
    if media_type(admitted) != "multipart/form-data":
        raise unsupported("Send the files as multipart/form-data.")
    files = await read_files(admitted, max_files=cast(Bounds, request.app.state.bounds).message_files)
    if not files:
        raise unprocessable("There is no part named 'files' with a file.")
    return DocumentList(documents=tuple(map(_build_document, await service.add(me, collection_id, files))))


@router.delete("/{collection_id}/documents/{document_id}", responses=problems())
async def delete_document(
    me: Me, service: Service, collection_id: CollectionPath, document_id: DocumentPath
) -> DeletedOut:
    """Delete a document of one of the caller's collections. Agents don't find it from now on."""
    await service.delete_document(me, collection_id, document_id)
    return DeletedOut(documents=1)


def _build(me: Principal, collection: Collection) -> CollectionOut:
    return CollectionOut(
        id=collection.id,
        title=collection.title,
        scope=collection.scope.value,
        is_mine=collection.owner == me.user_id,
        created_at=iso(collection.created_at),
        documents=collection.documents,
        waiting=collection.waiting,
        error=collection.error or None,
    )


def _build_document(document: CollectionDocument) -> DocumentOut:
    return DocumentOut(
        id=document.id,
        name=document.name,
        media_type=document.mime,
        size=document.size,
        added_at=iso(document.added_at),
        state="failed" if document.error else "indexed" if document.indexed else "waiting",
        error=document.error or None,
    )

"""Clones of a conversation's workspace: the smart HTTP protocol of git, read-only.

`git upload-pack` answers each request from the repository of the conversation. It gets the whole request from a file,
so that neither side waits for the other; its output goes to the client as fast as the client reads. The process ends
with the request.
"""

import asyncio
import base64
import tempfile
import zlib
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import replace
from typing import IO, Annotated, Any, Final, Literal, cast

import structlog
from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.datastructures import Headers
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.core.subprocesses import kill_group
from everturn.git import GitFolder
from everturn.history.repository import GitHistory
from ingress.admission.route import AdmittedRequest, AdmittedRoute, media_type
from ingress.auth.gate import AuthGate, Caller, Me
from ingress.errors import (
    ProblemError,
    forbidden,
    malformed,
    too_large,
    unauthorized,
    unavailable,
    unsupported,
)
from ingress.fields import ConversationPath
from ingress.history.service import HistoryService, history_service
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

UPLOAD_PACK: Final = "git-upload-pack"
MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Of a request, compressed or not: the 20,000 commits that a history can have take 1 MB."""
MAX_FETCH_S = 1_800.0
"""For a whole answer: 512 MiB in this time is 2.4 Mbit/s."""
_PIECE: Final = 65_536
_REQUEST_TYPE: Final = "application/x-git-upload-pack-request"
_RESULT_TYPE: Final = "application/x-git-upload-pack-result"
_REFS_TYPE: Final = "application/x-git-upload-pack-advertisement"
_NOT_KEPT: Final = {"Cache-Control": "no-cache, max-age=0, must-revalidate", "X-Content-Type-Options": "nosniff"}
_SERVICE_LINE: Final = b"001e# service=git-upload-pack\n0000"
_SETTINGS: Final = {
    "uploadpack.allowFilter": "false",
    "uploadpack.allowAnySHA1InWant": "false",
    "uploadpack.allowRefInWant": "false",
    "transfer.hideRefs": "refs/everturn",
}
"""A filter would make the server look at each object."""


class GitRoute(AdmittedRoute):
    """A route for git, which sends a token as the password of HTTP Basic, and compresses its requests.

    Basic is accepted here only, and not from the pages of a browser, which sends a password that it knows by itself.
    """

    encodings = frozenset({"identity", "gzip", "x-gzip"})

    async def authenticate(self, request: Request, gate: AuthGate) -> Caller:
        """Return the caller, by Bearer or Basic. A 401 asks for Basic, so that git asks for a password."""
        if _is_from_browser(request.headers):
            return await super().authenticate(request, gate)
        try:
            token = _read_password(request.headers)
            if token is None:
                return await super().authenticate(request, gate)
            path = request.path_params
            return await gate.authenticate_token(token, request.headers, tenant=path["tenant"], project=path["project"])
        except ProblemError as refusal:
            if refusal.status_code != 401:
                raise
            raise _ask_for_password(refusal) from refusal

    def max_body_bytes_of(self, request: Request) -> int:
        return MAX_REQUEST_BYTES


def _ask_for_password(refusal: ProblemError) -> ProblemError:
    challenge = {"WWW-Authenticate": 'Basic realm="everturn", charset="UTF-8"'}
    return ProblemError(refusal.answer, headers=challenge)


def _is_from_browser(headers: Headers) -> bool:
    return any(name in headers for name in ("sec-fetch-site", "sec-fetch-mode", "origin"))


def _names_somebody(headers: Headers) -> bool:
    """Whether the request says whose it is, by a credential or for development."""
    return any(name in headers for name in ("authorization", "x-dev-user"))


def _read_password(headers: Headers) -> str | None:
    """The password of HTTP Basic; None if the request has another credential or none. Raises 401."""
    credentials = headers.getlist("authorization")
    scheme, _, encoded = credentials[0].partition(" ") if len(credentials) == 1 else ("", "", "")
    if scheme.lower() != "basic":
        return None
    try:
        password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")[2].strip()
    except ValueError as error:
        raise unauthorized("The Basic credential is not valid base64 of UTF-8 text.") from error
    if not password:
        raise unauthorized("Send a token as the password, with any user name.")
    return password


router = APIRouter(
    prefix="/conversations/{tenant}/{project}/{conversation_id}/workspace.git",
    route_class=GitRoute,
    tags=["workspace"],
)
Service = Annotated[HistoryService, Depends(history_service)]


def _describe(description: str, mime: str) -> dict[str, Any]:
    return {"description": description, "content": {mime: {"schema": {"type": "string", "format": "binary"}}}}


@router.get(
    "/info/refs",
    response_class=Response,
    responses={**problems(), 200: _describe("The branches, in the protocol of git.", _REFS_TYPE)},
)
async def get_git_refs(
    *,
    request: Request,
    me: Me,
    service: Service,
    conversation_id: ConversationPath,
    wanted: Annotated[
        Literal["git-upload-pack", "git-receive-pack"],
        Query(alias="service", description="What git wants to do. `git-receive-pack`, a push, is a 403."),
    ] = UPLOAD_PACK,
) -> Response:
    """Where git begins a clone, whose address is this one up to `workspace.git`.

    Git sends a token as the password, with any user name; this and `git-upload-pack` are the only paths where HTTP
    Basic is accepted.
    """
    if wanted != UPLOAD_PACK:
        raise forbidden("The history of a workspace is read-only: only turns change it.")
    version = _read_version(request.headers)
    try:
        async with service.open(me, conversation_id) as history:
            folder = _configure(history, version)
            refs = await folder.run(["upload-pack", "--stateless-rpc", "--advertise-refs", str(folder.path)])
    except NotFound as missing:
        if _names_somebody(request.headers) or _is_from_browser(request.headers):
            raise
        # In development mode everybody has an identity, so git would not be asked for that of the owner.
        raise _ask_for_password(unauthorized("Send the token of the owner as the password.")) from missing
    beginning = b"" if version else _SERVICE_LINE
    return Response(beginning + refs, headers=_NOT_KEPT, media_type=_REFS_TYPE)


@router.post(
    "/git-upload-pack",
    response_class=Response,
    responses={**problems(408, 413, 415), 200: _describe("The answer, in the protocol of git.", _RESULT_TYPE)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {_REQUEST_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def fetch_git_pack(request: Request, me: Me, service: Service, conversation_id: ConversationPath) -> Response:
    """What git sends and gets in a clone or a fetch. The body can be compressed with gzip; it has at most 4 MiB, also
    without the compression."""
    await service.check(me, conversation_id)
    if media_type(request) != _REQUEST_TYPE:
        raise unsupported(f"Send the body as {_REQUEST_TYPE}.")
    body = await _read_body(cast(AdmittedRequest, request))
    return _PackResponse(service, me, conversation_id, body, version=_read_version(request.headers))


class _PackResponse(StreamingResponse):
    """What `git upload-pack` answers to a request."""

    def __init__(
        self, service: HistoryService, me: Principal, conversation_id: ConversationId, body: IO[bytes], *, version: str
    ) -> None:
        super().__init__(_nothing(), headers=_NOT_KEPT, media_type=_RESULT_TYPE)
        self._service = service
        self._me = me
        self._conversation_id = conversation_id
        self._body = body
        self._version = version
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises problems before the response has begun. One that takes too long is cut off, which git notices."""
        try:
            with self._body:
                async with asyncio.timeout(MAX_FETCH_S), self._service.open(self._me, self._conversation_id) as history:
                    await self._run(history, scope, receive, send)
        except TimeoutError as error:
            if not self._has_begun:
                raise unavailable("The history was not read in time.") from error
            _log.warning("Cut off a fetch of a history", conversation_id=self._conversation_id, limit_s=MAX_FETCH_S)

    async def _run(self, history: GitHistory, scope: Scope, receive: Receive, send: Send) -> None:
        folder = _configure(history, self._version)
        command = ["upload-pack", "--stateless-rpc", "--strict", str(folder.path)]
        process = await folder.start(command, stdin=self._body.fileno())
        # Not in the iterator, which is cancelled again and again once the client has disconnected.
        try:
            first = await _read_piece(process)
            if not first and (status := await process.wait()):
                if status > 0:
                    raise malformed("Git can't read this request.")
                raise unavailable("Git was stopped while it read the history.")
            self.body_iterator = self._iterate(process, first)
            self._has_begun = True
            await super().__call__(scope, receive, send)
        finally:
            await kill_group(process)

    async def _iterate(self, process: Process, first: bytes) -> AsyncGenerator[bytes]:
        piece = first
        while piece:
            yield piece
            piece = await _read_piece(process)
        if status := await process.wait():
            # What git has sent to the client says why.
            _log.info("A fetch of a history failed", conversation_id=self._conversation_id, status=status)


async def _nothing() -> AsyncGenerator[bytes]:
    yield b""


async def _read_piece(process: Process) -> bytes:
    if process.stdout is None:
        raise RuntimeError("Git was started without a pipe.")
    return await process.stdout.read(_PIECE)


def _read_version(headers: Headers) -> str:
    """The protocol that the client asks for, if it is version 2; otherwise empty, which is version 0."""
    return "version=2" if "version=2" in headers.get("git-protocol", "").split(":") else ""


def _configure(history: GitHistory, version: str) -> GitFolder:
    """The repository, for upload-pack."""
    environment: dict[str, str] = {"GIT_PROTOCOL": version, "GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for n, (key, value) in enumerate(_SETTINGS.items()):
        environment |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    return GitFolder(history.folder.path, replace(history.folder.limits, environment=environment))


async def _read_body(request: AdmittedRequest) -> IO[bytes]:
    """The body without its compression, as a file to read. Raises problems: 400, 408, 413."""
    is_packed = request.headers.get("content-encoding", "identity").lower() != "identity"
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        unpacked = _Unpacked(file, is_packed=is_packed)
        async for chunk in request.stream():
            await asyncio.to_thread(unpacked.write, chunk)
        await asyncio.to_thread(unpacked.finish)
        stack.pop_all()
        return file


class _Unpacked:
    """Writes a body into a file, and decompresses it in small pieces, so that a small one can't become a huge one."""

    def __init__(self, file: IO[bytes], *, is_packed: bool) -> None:
        self._file = file
        self._size = 0
        self._unpacker = zlib.decompressobj(wbits=31) if is_packed else None

    def write(self, chunk: bytes) -> None:
        """Raises problems: 400, 413."""
        if self._unpacker is None:
            self._save(chunk)
            return
        while chunk:
            if self._unpacker.eof:
                raise malformed("The body goes on after the end of its compression.")
            self._save(self._unpack(chunk))
            chunk = self._unpacker.unconsumed_tail or self._unpacker.unused_data

    def finish(self) -> None:
        """Raises problems: 400, 413."""
        while self._unpacker is not None and (rest := self._unpack(b"")):
            self._save(rest)
        if self._unpacker is not None and not self._unpacker.eof:
            raise malformed("The compressed body is incomplete.")
        self._file.seek(0)

    def _unpack(self, chunk: bytes) -> bytes:
        if self._unpacker is None or self._unpacker.eof:
            return b""
        try:
            return self._unpacker.decompress(chunk, _PIECE)
        except zlib.error as error:
            raise malformed("The body is not compressed with gzip.") from error

    def _save(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_REQUEST_BYTES:
            raise too_large(f"The body is larger than {MAX_REQUEST_BYTES} bytes.")
        self._file.write(data)

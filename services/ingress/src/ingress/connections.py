"""The caller's accounts at MCP servers, and the page to which a browser returns after it connected one.

A browser that returns sends no credential, because there are no cookies. The page therefore names the user whose agent
gets access, and asks: someone who was tricked into opening another person's link sees that it is not theirs.
"""

import asyncio
import html
import re
from contextlib import AbstractContextManager, suppress
from typing import Annotated, Final, cast
from urllib.parse import parse_qs

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field
from starlette.datastructures import Headers

from everturn.core.clock import iso
from everturn.core.errors import Conflict, DatabaseFault, NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.loops import guarded
from everturn.mcp_connections.connections import ALIAS, AnsweredRequest, Connection, ConnectionBook, ServerKey
from everturn.turns.inbox import InboxFull
from ingress.admission.connections import load_address
from ingress.admission.limits import load_request_limits
from ingress.admission.route import AdmittedRoute, admit_request
from ingress.auth.gate import Me
from ingress.bundles import Bundles
from ingress.chat.schemas import SignalIn, Submission
from ingress.chat.service import ChatService
from ingress.errors import ProblemError, malformed, unauthorized
from ingress.fields import JsonBody
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

MAX_VALUE_CHARS: Final = 4_000
"""Of a code, a state, an issuer. Providers document up to 2,048."""
PRINTABLE: Final = r"^[\x20-\x7e]*$"
"""What a code, a state and an issuer consist of (RFC 6749, appendix A; RFC 9207)."""
MAX_FORM_BYTES: Final = 16_384
SIGNAL_S: Final = 15.0
"""How long a signal to a turn is tried, while a person waits for the page. A failover of Redis is usually shorter."""
SIGNAL_PAUSE_S: Final = 1.0
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    # With no-referrer, browsers send the form without its origin, which is refused.
    "Referrer-Policy": "strict-origin",
    "X-Content-Type-Options": "nosniff",
}
_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body{{font:16px system-ui;max-width:32rem;margin:4rem auto;padding:0 1rem}}</style>
<h1>{title}</h1>{body}</html>"""
_FORM: Final = """<p>The agent <b>{agent}</b> of the user <b>{user}</b> ({tenant}/{project}) will get access to your
account at <b>{service}</b>.</p><p>Click Connect only if this user is you, and you have just asked for this.</p>
<form method="post" action="{server}">{fields}<button>Connect</button></form>"""
_CLOSE: Final = "You can close this page."
_USED: Final = "This link was already used or is older than 10 minutes. Ask the agent again to get a new one."
_NOT_SIGNALLED: Final = "but the agent was not notified yet. Reload this page to try again."

router = APIRouter(prefix="/mcp-connections/{tenant}/{project}", route_class=AdmittedRoute, tags=["connections"])
callback_router = APIRouter(prefix="/mcp-connections/callback/{bundle_id}/{server}", include_in_schema=False)


class ConnectionOut(JsonBody):
    """An account that an agent can use."""

    bundle_id: str = Field(examples=["desk"])
    """The agent's id."""
    server: str = Field(examples=["mail"])
    """The alias of the agent's MCP server."""
    title: str = Field(examples=["Example Mail"])
    """The name of the service."""
    connected_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])
    """When the account was connected, in ISO 8601 and UTC."""


class ConnectionList(JsonBody):
    """All connected accounts, the latest first."""

    items: tuple[ConnectionOut, ...]


class DisconnectedOut(JsonBody):
    """How many connections were deleted."""

    deleted: int = Field(examples=[1])
    """How many connections were deleted."""


class ConnectionService:
    """Deletes connections, and accepts the answers of authorization servers."""

    def __init__(self, book: ConnectionBook, chat: ChatService, bundles: Bundles) -> None:
        self.book = book
        self._bundles = bundles
        self._chat = chat

    async def delete(self, principal: Principal, key: ServerKey | None = None) -> DisconnectedOut:
        """Delete one connection or all. Raises NotFound for one that does not exist."""
        deleted = await self.book.delete(principal, key)
        if key is not None and not deleted:
            raise NotFound()
        return DisconnectedOut(deleted=deleted)

    async def ask(self, request: Request, key: ServerKey, fields: dict[str, str]) -> str:
        """The page that asks the person. Raises 401 and 429 problems for links that can't be used."""
        with self._watching(request, fields):
            found = await self.book.find_request(fields["state"], key, fields["code"])
            if found is None:
                raise unauthorized(_USED)
        inputs = (f'<input type="hidden" name="{name}" value="{html.escape(value)}">' for name, value in fields.items())
        who = found.principal
        return _FORM.format(
            agent=html.escape(await self._bundles.load_name(key.bundle_id)),
            user=html.escape(who.user_id),
            tenant=html.escape(who.tenant),
            project=html.escape(who.project),
            service=html.escape(found.title),
            server=html.escape(key.server),
            fields="".join(inputs),
        )

    async def accept(self, request: Request, key: ServerKey, fields: dict[str, str]) -> bool:
        """Save the answer and signal it to the turns that wait for it; without a code, the person has refused. False if
        a turn did not get the signal: repeat the same answer to send it again. Raises 401 and 429 problems."""
        code = fields.get("code")
        with self._watching(request, fields):
            answered = await self.book.answer_request(fields["state"], key, code, fields.get("iss"))
            if not answered:
                raise unauthorized(_USED)
        # At once, so that one that hangs does not delay the others. They are at most MAX_ANSWERED, and the chat service
        # stores a few of one person's signals at a time.
        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(self._signal(each, is_refused=code is None)) for each in answered]
        return all(each.result() for each in sent)

    async def _signal(self, waiting: AnsweredRequest, *, is_refused: bool) -> bool:
        """Let the turn continue. False if it did not get the signal; an error does not end the signals of others."""
        is_sent = False
        with guarded("account_signal", health=None, conversation_id=waiting.conversation_id):
            is_sent = await self._send_signal(waiting, is_refused=is_refused)
        return is_sent

    async def _send_signal(self, waiting: AnsweredRequest, *, is_refused: bool) -> bool:
        """False if the turn did not accept the signal within SIGNAL_S."""
        form = SignalIn(
            kind="deny" if is_refused else "approve",
            approval_id=waiting.approval_id,
            text="The account was not connected." if is_refused else "",
        )
        problem = f"The turn did not accept the signal within {SIGNAL_S:g} s."
        with suppress(TimeoutError):
            async with asyncio.timeout(SIGNAL_S):
                while True:
                    try:
                        await self._chat.accept_signal(
                            waiting.principal, waiting.conversation_id, Submission(form, ()), Headers({})
                        )
                        return True
                    except (InboxFull, Unavailable, DatabaseFault, ProblemError) as error:
                        problem = str(error)
                    except (Conflict, NotFound) as error:
                        # The turn has ended or the person has answered otherwise; the next call finds the account.
                        _log.info("A turn no longer waits for an account", why=error.detail)
                        return True
                    await asyncio.sleep(SIGNAL_PAUSE_S)
        _log.error(
            "A turn did not get the answer about an account",
            conversation_id=waiting.conversation_id,
            error=problem,
        )
        return False

    def _watching(self, request: Request, fields: dict[str, str]) -> AbstractContextManager[None]:
        """Counts unknown states by address, apart from credentials: any page can send its visitors here."""
        counted_as = f"callback {load_address(request)}"
        return load_request_limits(request).guard.watching(counted_as, f"state {fields['state']}")


async def connection_service(request: Request) -> ConnectionService:
    """The service of this application."""
    return cast(ConnectionService, request.app.state.connections)


Service = Annotated[ConnectionService, Depends(connection_service)]
Value = Annotated[str | None, Query(max_length=MAX_VALUE_CHARS, pattern=PRINTABLE)]
State = Annotated[str, Query(min_length=1, max_length=MAX_VALUE_CHARS, pattern=PRINTABLE)]
BundleId = Annotated[str, Path(description="The agent's id.", max_length=128, pattern=PRINTABLE, examples=["desk"])]
Server = Annotated[str, Path(description="The alias of the MCP server.", pattern=ALIAS, examples=["mail"])]


@router.get("", responses=problems())
async def list_connections(me: Me, service: Service) -> ConnectionList:
    """The caller's accounts at MCP servers that agents can use, the latest first."""
    return ConnectionList(items=tuple(map(_build_view, await service.book.load_all(me))))


@router.delete("", responses=problems())
async def delete_connections(me: Me, service: Service) -> DisconnectedOut:
    """Delete all connections. Agents ask again before they use an account. Open questions for one stay open."""
    return await service.delete(me)


@router.delete("/{bundle_id}/{server}", responses=problems())
async def delete_connection(
    me: Me,
    service: Service,
    bundle_id: BundleId,
    server: Server,
) -> DisconnectedOut:
    """Delete one connection. The agent asks again before it uses the account. Open questions for it stay open."""
    return await service.delete(me, ServerKey(bundle_id, server))


@callback_router.get("")
async def show_callback(
    *,
    request: Request,
    service: Service,
    bundle_id: BundleId,
    server: Server,
    state: State,
    code: Value = None,
    iss: Value = None,
    error: Value = None,
) -> HTMLResponse:
    """The page that asks whether the account is to be connected. Other parameters are ignored (RFC 6749, 4.1.2)."""
    key, given = ServerKey(bundle_id, server), {"state": state, "code": None if error else code, "iss": iss}
    fields = {name: value for name, value in given.items() if value}
    try:
        if "code" in fields:
            return _show("Connect your account?", await service.ask(request, key, fields))
        is_signalled = await service.accept(request, key, fields)
    except ProblemError as problem:
        return _refuse(problem)
    text = _CLOSE if is_signalled else f"Your answer is saved, {_NOT_SIGNALLED}"
    return _show("Not connected", f"<p>{text}</p>")


@callback_router.post("")
async def accept_callback(*, request: Request, service: Service, bundle_id: BundleId, server: Server) -> HTMLResponse:
    """Accept the code with which a worker connects the account."""
    body = await admit_request(request, max_body_bytes=MAX_FORM_BYTES).body()
    try:
        parsed = parse_qs(body.decode("ascii"), max_num_fields=10)
    except ValueError as error:
        raise malformed("The body is not a form.") from error
    fields = {name: parsed[name][0] for name in ("state", "code", "iss") if name in parsed}
    is_plain = all(len(value) <= MAX_VALUE_CHARS and re.fullmatch(PRINTABLE, value) for value in fields.values())
    if not {"state", "code"} <= set(fields) or not is_plain:
        raise malformed("The form was not sent by this page. Open the link again.")
    try:
        is_signalled = await service.accept(request, ServerKey(bundle_id, server), fields)
    except ProblemError as problem:
        return _refuse(problem)
    # The tokens are requested by a worker when the agent uses the account, which can still fail.
    text = (
        f"The agent finishes the connection. {_CLOSE}" if is_signalled else f"Your sign-in is saved, {_NOT_SIGNALLED}"
    )
    return _show("Signed in", f"<p>{text}</p>")


def _build_view(connection: Connection) -> ConnectionOut:
    return ConnectionOut(
        bundle_id=connection.bundle_id,
        server=connection.server,
        title=connection.title,
        connected_at=iso(connection.connected_at),
    )


def _refuse(problem: ProblemError) -> HTMLResponse:
    """A page for the person, who has no use for problem details."""
    page = _show("Not connected", f"<p>{html.escape(problem.answer.detail)}</p>")
    return HTMLResponse(page.body, status_code=problem.status_code, headers={**HEADERS, **(problem.headers or {})})


def _show(title: str, body: str) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(title=html.escape(title), body=body), headers=HEADERS)

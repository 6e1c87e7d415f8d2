"""The chat of one agent inside a page of another site: tickets, the page for the frame, and its bearer token.

The backend of the site asks for a ticket, and its page opens the frame with it. Neither cookies nor the
credential of the backend reach a browser.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Annotated, Final, Literal, cast
from urllib.parse import quote, urlsplit

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import Field
from starlette.datastructures import Headers

from everturn.bundles.embedding import EmbedConfig, Origin
from everturn.core.clock import iso
from everturn.limits.token_buckets import Limit, TokenBuckets
from ingress.admission.limits import is_guest
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import AuthGate, Caller, CallerOf
from ingress.auth.signed_tokens import EMBED_TICKET_S, EmbedPass
from ingress.bundles import Bundles, load_bundles
from ingress.errors import ProblemError, forbidden, unauthorized, unprocessable
from ingress.fields import JsonBody
from ingress.metrics import IngressMetrics
from ingress.openapi.responses import problems
from ingress.web import POLICY, SECURITY, load_web

_log = structlog.get_logger(__name__)

ONCE: Final = Limit(1, 2 * EMBED_TICKET_S)
"""A bucket of its own for each ticket, which is not full again before the ticket has expired."""
MAX_ANCESTORS: Final = 16
NO_ANCESTORS: Final = "frame-ancestors 'none'"
_SCOPE_KEY: Final = "everturn.embed"

router = APIRouter(prefix="/bundles/{tenant}/{project}", route_class=AdmittedRoute, tags=["bundles"])
page_router = APIRouter(include_in_schema=False)


class EmbedTicketIn(JsonBody):
    """Which page will show the chat, and to whom."""

    origin: Origin
    """The origin of the page, which the operator allows."""
    user: Literal["guest", "caller"] = "guest"
    """Who chats: a guest of this project, or the user of the credential."""
    visitor: str | None = Field(default=None, min_length=1, max_length=200, examples=["customer-17"])
    """Your name for the guest, who then keeps the same conversations; null for a new guest."""


class EmbedTicketOut(JsonBody):
    """`url` is the path for the frame, which can be opened once until `expires_at` (UTC, RFC 3339)."""

    ticket: str
    """The ticket."""
    url: str
    """The path of the page with the ticket, on this server."""
    expires_at: str
    """When it expires, in ISO 8601 (UTC)."""


class EmbedSessionIn(JsonBody):
    """What the page in the frame knows of the pages around it, if its browser says so."""

    ancestors: list[str] = Field(default_factory=list[str], max_length=MAX_ANCESTORS)
    """The origins of the pages around the frame."""


class EmbedSessionOut(JsonBody):
    """The bearer token of the embedded chat, and what it is for."""

    token: str
    tenant: str
    project: str
    bundle_id: str
    expires_at: str


class Embedding:
    """Which origins may embed what, and which tickets are used."""

    def __init__(self, config: EmbedConfig, buckets: TokenBuckets, metrics: IngressMetrics) -> None:
        self._config = config
        self._buckets = buckets
        self._metrics = metrics

    def check_origin(self, origin: str, *, tenant: str, bundle_id: str) -> None:
        """Raises 403 for an origin that may not embed this bundle."""
        if not self._config.allows(origin, tenant=tenant, bundle_id=bundle_id):
            raise self.refuse("origin", bundle_id, forbidden("Pages of this origin may not show this agent."))

    def check_page(self, opened: EmbedPass, bundle_id: str, headers: Headers) -> None:
        """Raises 403 if the ticket is for another bundle, or its origin is not allowed any more or not that of the page
        around the frame, or there is no frame, where the browser says so.

        Without a frame, a link with the ticket of somebody else would let people chat under that person's name.
        """
        if opened.bundle_id != bundle_id:
            raise self.refuse("ticket", opened.bundle_id, forbidden("The ticket is for another agent."))
        self.check_origin(opened.origin, tenant=opened.caller.principal.tenant, bundle_id=bundle_id)
        if "document" in headers.getlist("sec-fetch-dest"):
            problem = forbidden("This chat can be shown in a frame of its page only.")
            raise self.refuse("origin", bundle_id, problem)
        known = {opened.origin, *(f"{scheme}://{headers.get('host', '')}" for scheme in ("http", "https"))}
        if any(_read_referrer(each) not in known for each in headers.getlist("referer")):
            raise self.refuse("origin", bundle_id, forbidden("The ticket is for a page of another origin."))

    async def open(self, opened: EmbedPass, ancestors: Sequence[str]) -> None:
        """Use a ticket. Raises 401 if it was used before, 403 if a page around the frame has another origin, and
        Unavailable."""
        self.check_origin(opened.origin, tenant=opened.caller.principal.tenant, bundle_id=opened.bundle_id)
        if any(origin != opened.origin for origin in ancestors):
            raise self.refuse("origin", opened.bundle_id, forbidden("The ticket is for a page of another origin."))
        key = f"embed:{hashlib.sha256(opened.nonce.encode()).hexdigest()}"
        if not (await self._buckets.draw(key, ONCE)).taken:
            problem = unauthorized("The ticket for this chat was used already. Load the page again.")
            raise self.refuse("used", opened.bundle_id, problem)

    def refuse(self, reason: str, bundle_id: str | None, problem: ProblemError) -> ProblemError:
        """The problem, once it is counted and logged. Without a valid ticket there is no `bundle_id`, and nothing is
        logged, because anybody can send such requests."""
        self._metrics.frame_refusals.labels(kind="embed", reason=reason).inc()
        if bundle_id is not None:
            _log.info("Refused an embedded chat", reason=reason, bundle_id=bundle_id)
        return problem


async def load_embedding(request: Request) -> Embedding:
    """The embedding of this application."""
    return cast(Embedding, request.app.state.embedding)


def load_gate(request: Request) -> AuthGate:
    """The gate of this application."""
    return cast(AuthGate, request.app.state.auth)


class EmbedRoute(AdmittedRoute):
    """A route whose credential is a ticket for an embedded chat."""

    async def authenticate(self, request: Request, gate: AuthGate) -> Caller:
        opened = await gate.authenticate_embedding(request.headers)
        request.scope[_SCOPE_KEY] = opened
        return opened.caller


session_router = APIRouter(route_class=EmbedRoute, include_in_schema=False)
Embeds = Annotated[Embedding, Depends(load_embedding)]


@router.post("/{bundle_id}/embed-tickets", status_code=201, responses=problems(408, 413, 415))
async def create_embed_ticket(
    *,
    request: Request,
    response: Response,
    caller: CallerOf,
    bundle_id: Annotated[str, Path(description="The id of a bundle; `default` is the default one.", max_length=128)],
    wanted: EmbedTicketIn,
    embedding: Embeds,
    bundles: Annotated[Bundles, Depends(load_bundles)],
) -> EmbedTicketOut:
    """A ticket with which a page of another site can show the chat of a bundle, once and within two minutes."""
    if wanted.visitor is not None and wanted.user != "guest":
        raise unprocessable("body.visitor: only a guest can have one. Leave it out, or set body.user to guest.")
    gate = load_gate(request)
    chatting = gate.build_visitor(caller, wanted.visitor) if wanted.user == "guest" else caller
    bundle = await bundles.load_one(chatting.principal, bundle_id)
    if is_guest(caller.principal):
        # A guest could make any number of guests.
        raise forbidden("Guests can't create tickets.")
    embedding.check_origin(wanted.origin, tenant=caller.principal.tenant, bundle_id=bundle.id)
    ticket = gate.build_embed_ticket(chatting, bundle.id, wanted.origin)
    response.headers["Cache-Control"] = "no-store"
    return EmbedTicketOut(
        ticket=ticket.text,
        url=f"/embed/{quote(bundle.id, safe='')}?ticket={ticket.text}",
        expires_at=iso(datetime.fromtimestamp(ticket.expires_at, UTC)),
    )


@page_router.get("/embed/{bundle_id}")
async def get_embedded_page(
    request: Request, bundle_id: Annotated[str, Path()], embedding: Embeds, ticket: Annotated[str, Query()] = ""
) -> Response:
    """The page for the frame, which only pages of the ticket's origin can show. It does not use up the ticket, because
    browsers load pages in advance and again."""
    web = load_web(request)
    try:
        opened = load_gate(request).read_embed_ticket(ticket)
        embedding.check_page(opened, bundle_id, request.headers)
    except ProblemError as problem:
        if problem.status_code == 401:
            embedding.refuse("ticket", None, problem)
        return _explain(problem.answer.detail, problem.status_code)
    if web is None:
        return _explain("This server was started without the web client.", 404)
    # The page lies one level deeper than `/`, and names its files relative to itself.
    page = web.page.content.replace(b'="./', b'="../')
    policy = POLICY.replace(NO_ANCESTORS, f"frame-ancestors {opened.origin}")
    return HTMLResponse(page, headers={**SECURITY, "Content-Security-Policy": policy, "Cache-Control": "no-store"})


@session_router.post("/embed/session", status_code=201)
async def create_embed_session(
    request: Request, response: Response, around: EmbedSessionIn, embedding: Embeds
) -> EmbedSessionOut:
    """The bearer token for a ticket, which is used up."""
    opened = cast(EmbedPass, request.scope[_SCOPE_KEY])
    await embedding.open(opened, around.ancestors)
    session = load_gate(request).build_embed_session(opened.caller)
    response.headers["Cache-Control"] = "no-store"
    return EmbedSessionOut(
        token=session.text,
        tenant=opened.caller.principal.tenant,
        project=opened.caller.principal.project,
        bundle_id=opened.bundle_id,
        expires_at=iso(datetime.fromtimestamp(session.expires_at, UTC)),
    )


def _read_referrer(referrer: str) -> str | None:
    """The origin of a page; None for what is no address."""
    try:
        parts = urlsplit(referrer)
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}"


def _explain(detail: str, status: int) -> Response:
    text = f"<!doctype html><html lang=en><meta charset=utf-8><title>Everturn</title><p>{escape(detail)}</html>"
    policy = f"default-src 'none'; {NO_ANCESTORS}"
    headers = {**SECURITY, "Content-Security-Policy": policy, "Cache-Control": "no-store"}
    return HTMLResponse(text, status_code=status, headers=headers)

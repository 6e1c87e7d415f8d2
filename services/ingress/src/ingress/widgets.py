"""Widgets of bundles: pages of other authors beside a conversation, in frames without an origin and without a network.

A frame can't send a credential, so the caller gets an address with a ticket, which names a version of a bundle and no
person.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Final, cast

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from everturn.core.clock import Clock, iso
from everturn.core.errors import NotFound, Unavailable
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.auth.signed_tokens import TokenSigner, WidgetTickets
from ingress.bundles import Bundles, load_bundles
from ingress.errors import ProblemError, absent
from ingress.fields import JsonBody
from ingress.metrics import IngressMetrics
from ingress.openapi.responses import problems
from ingress.web import CONTENT_TYPES, SECURITY

PAGE: Final = "index.html"
CACHE_BYTES: Final = 32 * 1024 * 1024
"""Files that a process keeps in memory, the least recently used first removed. One has at most 4 MiB."""
LOADS: Final = 4
"""Files that a process loads from the database at once: requests for them need no credential but a ticket."""
LOAD_LIMIT_S: Final = 5.0
POLICY: Final = "; ".join(
    (
        "sandbox allow-scripts",
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    )
)
"""A widget runs its own scripts, without an origin, and loads files of this server only. `connect-src` is that of
`default-src`, so scripts can request nothing: all that a widget learns comes from the page around it."""
HEADERS: Final = {
    **SECURITY,
    "Content-Security-Policy": POLICY,
    # Chromium 152 and later: not even the name of another server is looked up.
    "Connection-Allowlist": "(response-origin)",
    # The page has no origin, so all of its files are of another one.
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Access-Control-Allow-Origin": "*",
}

router = APIRouter(prefix="/bundles/{tenant}/{project}", route_class=AdmittedRoute, tags=["bundles"])
file_router = APIRouter(include_in_schema=False)


class WidgetAddressOut(JsonBody):
    """Where the page of a widget is, for a frame with `sandbox="allow-scripts"`."""

    url: str
    """The path of its page on this server; it needs no credential."""
    expires_at: str
    """Until when its files can be read (UTC, RFC 3339)."""


class Widgets:
    """The files of widgets, and the tickets that open them. Owns the files that are kept in memory."""

    def __init__(
        self,
        load_file: Callable[[str, str, str], Awaitable[bytes]],
        signer: TokenSigner,
        clock: Clock,
        metrics: IngressMetrics,
    ) -> None:
        self.tickets = WidgetTickets(signer, clock)
        self._clock = clock
        self._load_file = load_file
        self._metrics = metrics
        self._kept: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._loads = asyncio.Semaphore(LOADS)

    async def load(self, ticket: str, path: str) -> tuple[bytes, int]:
        """A file of the widget that a ticket opens, and for how many seconds it can be cached.

        Raises 404 for an invalid ticket and an unknown file, and Unavailable.
        """
        opened = self.tickets.try_read(ticket)
        if opened is None:
            raise self._refuse("ticket", "The address of the widget has expired. Open the widget again.")
        wanted = opened.bundle_id, opened.digest, f"{opened.widget}/{path or PAGE}"
        try:
            content = self._kept.get(wanted) or await self._load(wanted)
        except NotFound as error:
            raise self._refuse("file", "") from error
        self._keep(wanted, content)
        return content, max(0, int(opened.expires_at - self._clock.now().timestamp()))

    async def _load(self, wanted: tuple[str, str, str]) -> bytes:
        try:
            async with asyncio.timeout(LOAD_LIMIT_S), self._loads:
                return self._kept.get(wanted) or await self._load_file(*wanted)
        except TimeoutError as error:
            raise Unavailable(f"A file of a widget was not loaded in {LOAD_LIMIT_S:.0f} s.") from error

    def _keep(self, wanted: tuple[str, str, str], content: bytes) -> None:
        self._kept_bytes += len(content) - len(self._kept.pop(wanted, b""))
        self._kept[wanted] = content
        while self._kept_bytes > CACHE_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def _refuse(self, reason: str, detail: str) -> ProblemError:
        # Not logged: anybody can send requests without a ticket, and no rate limits them.
        self._metrics.frame_refusals.labels(kind="widget", reason=reason).inc()
        return absent(detail)


async def load_widgets(request: Request) -> Widgets:
    """The widgets of this application."""
    return cast(Widgets, request.app.state.widgets)


@router.get("/{bundle_id}/widgets/{name}", responses=problems())
async def get_widget(
    me: Me,
    widgets: Annotated[Widgets, Depends(load_widgets)],
    bundles: Annotated[Bundles, Depends(load_bundles)],
    bundle_id: Annotated[str, Path(description="The id of a bundle; `default` is the default one.", max_length=128)],
    name: Annotated[str, Path(description="The name of one of its widgets.", max_length=40, examples=["board"])],
) -> WidgetAddressOut:
    """The address of a widget's page. It opens the files of this widget for one to two hours, and nothing else."""
    bundle = await bundles.load_one(me, bundle_id)
    if name not in {widget.name for widget in bundle.widgets}:
        raise absent("This bundle has no widget of this name.")
    ticket = widgets.tickets.build(bundle.id, bundle.digest, name)
    expires_at = iso(datetime.fromtimestamp(ticket.expires_at, UTC))
    return WidgetAddressOut(url=f"/widgets/{ticket.text}/{PAGE}", expires_at=expires_at)


@file_router.api_route("/widgets/{ticket}/{path:path}", methods=["GET", "HEAD"])
async def get_widget_file(
    ticket: Annotated[str, Path()], path: Annotated[str, Path()], widgets: Annotated[Widgets, Depends(load_widgets)]
) -> Response:
    """A file of a widget, by its path below the widget's folder."""
    content, max_age_s = await widgets.load(ticket, path)
    kind = CONTENT_TYPES.get(PurePosixPath(path or PAGE).suffix.lower(), "application/octet-stream")
    cached = {"Cache-Control": f"private, max-age={max_age_s}, immutable"}
    return Response(content, media_type=kind, headers={**HEADERS, **cached})

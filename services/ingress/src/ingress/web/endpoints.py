"""Serving the web client: its page at `/`, its assets below `/assets/`, and the frame for pages of the agent."""

from typing import Annotated, cast

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, Response

from ingress.errors import absent
from ingress.web.bundle import LICENSES, Bundle, WebFile
from ingress.web.codings import try_choose_coding

router = APIRouter(include_in_schema=False)

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # Frames made of a text (srcdoc) have this policy too, so pages of the agent go into `/artifact-frame` instead.
        "style-src 'self' 'unsafe-inline'",
        # No foreign address: what an answer or a style names can't tell a stranger that it was looked at.
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self'",
        # Where a frame may go, and where it may be led by what runs in it: nowhere else.
        "frame-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""What the page may do. Its origin can start turns, so nothing foreign is loaded and nothing written into it runs."""
SECURITY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
FRAME_POLICY = "; ".join(
    (
        "sandbox allow-scripts",
        "default-src 'none'",
        "script-src 'unsafe-inline'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "media-src data: blob:",
        "font-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    )
)
"""What a page of the agent may do: run its own scripts, on no origin and without a network."""
FRAME_CONNECTIONS = "()"
"""No address at all: Chromium looks up and connects to where a frame navigates before it checks the policy above. This
header (Chromium 152 and later) is checked before the lookup. Browsers that do not know it ignore it."""
FRAME = (
    "<!doctype html><meta charset=utf-8><title>Artifact</title><script>"
    "addEventListener('message',e=>{if(e.source!==parent||typeof e.data!=='string')return;"
    "document.open();document.write(e.data);document.close()},{once:true});"
    "parent.postMessage('artifact-frame','*')</script>"
)
"""Says that it is there, takes one page from the one around it, and becomes that page."""
REVALIDATED = "no-cache"
FOREVER = "public, max-age=31536000, immutable"
"""For names that change with their content."""
UNBUILT = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Everturn</title>"
    "<p>Everturn's page would be here, but this server was started without it: build it with <code>npm ci</code> and "
    "<code>npm run build</code> in <code>clients/web</code> and set <code>WEB_DIST</code> to its folder "
    "<code>dist</code>, or start everything with <code>make run</code>; the API is described at "
    "<a href=/docs>/docs</a>.</html>"
)


@router.api_route("/", methods=["GET", "HEAD"])
async def get_page(request: Request) -> Response:
    """The page; without a built client a sentence that says how to get it."""
    bundle = load_web(request)
    if bundle is None:
        return HTMLResponse(UNBUILT, headers={**SECURITY, "Cache-Control": "no-store"})
    return _answer(request, bundle.page, REVALIDATED)


@router.api_route("/assets/{name:path}", methods=["GET", "HEAD"])
async def get_asset(request: Request, name: Annotated[str, Path()]) -> Response:
    """A file of the client. Raises 404 for what it has not."""
    bundle = load_web(request)
    file = bundle.assets.get(name) if bundle else None
    if file is None:
        raise absent()
    return _answer(request, file, REVALIDATED if name == LICENSES else FOREVER)


@router.get("/artifact-frame")
async def get_artifact_frame() -> Response:
    """The frame for pages of the agent: the client posts a page's text to it once it has said that it is there.

    A document of its own has a policy of its own, so the scripts in it run although the client's policy forbids them.
    """
    policies = {"Content-Security-Policy": FRAME_POLICY, "Connection-Allowlist": FRAME_CONNECTIONS}
    return HTMLResponse(FRAME, headers={**SECURITY, **policies, "Cache-Control": "no-store"})


def load_web(request: Request) -> Bundle | None:
    """The client of this application, None where there is none."""
    return cast(Bundle | None, request.app.state.web)


def _answer(request: Request, file: WebFile, cached: str) -> Response:
    coding = try_choose_coding(request.headers.get("accept-encoding", ""), tuple(file.coded))
    coded = {"Content-Encoding": coding} if coding else {}
    headers = {**SECURITY, **coded, "Cache-Control": cached, "Vary": "Accept-Encoding"}
    content = file.coded[coding] if coding else file.content
    return Response(content, media_type=file.content_type, headers=headers)

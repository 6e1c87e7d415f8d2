"""The built web client: its page and assets, read once, together with their precompressed variants."""

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, cast

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, Response

from everturn.core.errors import Invalid
from ingress.errors import absent

PAGE: Final = "index.html"
ASSETS: Final = "assets"
"""The folder of files with a content hash in their names."""
LICENSES: Final = "licenses.txt"
"""The one file in it without a hash: the licences of what the page contains."""
MAX_FILES: Final = 1_000
MAX_BYTES: Final = 64 * 1024 * 1024
CODINGS: Final = {"br": ".br", "gzip": ".gz"}
"""Content codings, best first, and the file name suffix of each."""
CONTENT_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".gif": "image/gif",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}

router = APIRouter(include_in_schema=False)

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # Frames made of a text (srcdoc) inherit this policy, so pages of the agent go into `/artifact-frame` instead.
        "style-src 'self' 'unsafe-inline'",
        # No foreign origins: an image in an answer or a style must not report to a third party that it was viewed.
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self'",
        # Frames, and scripts inside them, can navigate nowhere else.
        "frame-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The policy of the page. Its origin can start turns, so it loads nothing foreign and runs no injected scripts."""
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
"""The policy of an agent's page: it runs its own scripts, without an origin and without a network."""
FRAME_CONNECTIONS = "()"
"""No address is allowed: when a frame navigates, Chromium resolves and connects before it checks the policy above. This
header (Chromium 152 and later) is checked before the lookup. Browsers that do not support it ignore it."""
FRAME = (
    "<!doctype html><meta charset=utf-8><title>Artifact</title><script>"
    "addEventListener('message',e=>{if(e.source!==parent||typeof e.data!=='string')return;"
    "document.open();document.write(e.data);document.close()},{once:true});"
    "parent.postMessage('artifact-frame','*')</script>"
)
"""Announces itself to the parent page, accepts one page from it, and becomes that page."""
REVALIDATED = "no-cache"
FOREVER = "public, max-age=31536000, immutable"
"""For files whose names change with their content."""
UNBUILT = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Everturn</title>"
    "<p>This server was started without the web client. To build it, run <code>npm ci</code> and "
    "<code>npm run build</code> in <code>clients/web</code>, and set <code>WEB_DIST</code> to its folder "
    "<code>dist</code>; or start everything with <code>make run</code>. The API is documented at "
    "<a href=/docs>/docs</a>.</html>"
)


class BadBundle(Invalid):
    """WEB_DIST names no built web client."""


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file as it is sent: its bytes, and the bytes of each precompressed content coding."""

    content_type: str
    content: bytes
    coded: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The page, and the assets by their path under `assets/`."""

    page: WebFile
    assets: Mapping[str, WebFile]


def load_bundle(folder: pathlib.Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> Bundle:
    """Load all served files into memory; nothing else can be requested. Raises BadBundle."""
    try:
        contents = _load_contents(folder, max_files, max_bytes)
    except OSError as error:
        raise BadBundle(f"WEB_DIST={folder} can't be read: {error.strerror}.") from error
    files = {
        name: WebFile(
            CONTENT_TYPES.get(pathlib.Path(name).suffix, "application/octet-stream"), content, _pick(contents, name)
        )
        for name, content in contents.items()
        if not name.endswith(tuple(CODINGS.values()))
    }
    if PAGE not in files:
        raise BadBundle(f"WEB_DIST={folder} has no {PAGE}; build the web client, or leave WEB_DIST out.")
    assets = {name.removeprefix(f"{ASSETS}/"): file for name, file in files.items() if name.startswith(f"{ASSETS}/")}
    return Bundle(files[PAGE], assets)


def _load_contents(folder: pathlib.Path, max_files: int, max_bytes: int) -> dict[str, bytes]:
    """The bytes of the page and the assets by their path; links are not followed."""
    found = [folder / PAGE, *(folder / f"{PAGE}{end}" for end in CODINGS.values()), *(folder / ASSETS).rglob("*")]
    files = [path for path in found if path.is_file() and not path.is_symlink()]
    if len(files) > max_files or sum(path.stat().st_size for path in files) > max_bytes:
        raise BadBundle(f"WEB_DIST={folder} contains more than {max_files} files or {max_bytes} bytes.")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _pick(contents: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    return {coding: contents[name + end] for coding, end in CODINGS.items() if name + end in contents}


def try_choose_coding(accepted: str, offered: Sequence[str]) -> str | None:
    """The first of `offered` that an Accept-Encoding header accepts; None for the unencoded content."""
    weights = dict(_read(item) for item in accepted.split(",") if item.strip())
    other = weights.get("*", 0.0)
    return next((coding for coding in offered if weights.get(coding, other) > 0), None)


def _read(item: str) -> tuple[str, float]:
    """A coding and its weight; an unreadable weight counts as 0, a refusal."""
    name, *parameters = (part.strip().lower() for part in item.split(";"))
    weight = next((text.removeprefix("q=") for text in parameters if text.startswith("q=")), "1")
    try:
        return name, float(weight)
    except ValueError:
        return name, 0.0


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
    """The web client of this application, or None."""
    return cast(Bundle | None, request.app.state.web)


def _answer(request: Request, file: WebFile, cached: str) -> Response:
    coding = try_choose_coding(request.headers.get("accept-encoding", ""), tuple(file.coded))
    coded = {"Content-Encoding": coding} if coding else {}
    headers = {**SECURITY, **coded, "Cache-Control": cached, "Vary": "Accept-Encoding"}
    content = file.coded[coding] if coding else file.content
    return Response(content, media_type=file.content_type, headers=headers)

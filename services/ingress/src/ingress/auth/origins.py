"""The web pages that can use this server: one allow-list for HTTP (CORS) and for sockets."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingress.auth.development import check_own_host
from ingress.errors import ProblemError, forbidden, problem_response

_SCHEMES = ("http", "https")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

METHODS = "GET, POST, PUT, PATCH, DELETE"
REQUEST_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, If-Range, Last-Event-ID, Range"
)
EXPOSED = (
    "Accept-Ranges, Content-Disposition, Content-Range, ETag, Location, RateLimit, RateLimit-Policy, Retry-After,"
    " WWW-Authenticate"
)
MAX_AGE_S = 600


class Origins:
    """The origins that can read responses and write: those of the list, and this server's own."""

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        self._allowed = allowed

    def try_foreign(self, headers: Headers) -> str | None:
        """The Origin of a request from a foreign page; None for all other requests.

        The server's own origin is recognized by its host, because a proxy may terminate TLS.
        """
        origins, hosts = headers.getlist("origin"), headers.getlist("host")
        for origin in origins:
            scheme, _, authority = origin.partition("://")
            own = scheme in _SCHEMES and authority != "" and hosts == [authority]
            if not own and (origin not in self._allowed or len(origins) > 1):
                return origin or "null"
        return None

    def try_allowed(self, headers: Headers) -> str | None:
        """The Origin of a request, if the list contains it."""
        origins = headers.getlist("origin")
        return origins[0] if len(origins) == 1 and origins[0] in self._allowed else None

    def check_page(self, headers: Headers) -> None:
        """Reject what a foreign page sends (403): writes over HTTP, and sockets."""
        if self.try_foreign(headers) is not None:
            raise forbidden("This origin may not use this server.")
        if not headers.getlist("origin") and "cross-site" in headers.getlist("sec-fetch-site"):
            raise forbidden("Requests from other sites' pages are not accepted.")


class Cors:
    """ASGI middleware: answers preflights before any lookup, rejects writes of foreign pages, and sets the cache
    headers of every response.

    No response depends on a cookie and none ever allows credentials, so a page authenticates with a header.
    """

    def __init__(self, app: ASGIApp, *, origins: Origins, development: bool = False) -> None:
        self._app = app
        self._origins = origins
        self._development = development

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await self._answer_preflight(headers)(scope, receive, send)
            return
        allowed = self._origins.try_allowed(headers)

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                _mark(MutableHeaders(scope=message), allowed)
            await send(message)

        try:
            if self._development:
                # Against DNS rebinding: even resources that need no credential are not for foreign pages.
                check_own_host(headers)
            if scope["method"] not in SAFE_METHODS:
                self._origins.check_page(headers)
        except ProblemError as refusal:
            await problem_response(refusal)(scope, receive, send_marked)
        else:
            await self._app(scope, receive, send_marked)

    def _answer_preflight(self, headers: Headers) -> Response:
        """The answer is the same for every path, so it does not reveal what exists."""
        allowed = self._origins.try_allowed(headers)
        if allowed is None:
            answer = problem_response(forbidden("This origin may not use this server."))
        else:
            answer = Response(status_code=204)
            answer.headers["Access-Control-Allow-Origin"] = allowed
            answer.headers["Access-Control-Allow-Methods"] = METHODS
            answer.headers["Access-Control-Allow-Headers"] = REQUEST_HEADERS
            answer.headers["Access-Control-Max-Age"] = str(MAX_AGE_S)
        answer.headers["Vary"] = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
        return answer


def _mark(headers: MutableHeaders, allowed: str | None) -> None:
    headers.add_vary_header("Origin")
    # No cache may store private data; files, the page and streams set their own header.
    headers.setdefault("Cache-Control", "no-store")
    headers.setdefault("X-Content-Type-Options", "nosniff")
    if allowed is not None:
        headers["Access-Control-Allow-Origin"] = allowed
        headers["Access-Control-Expose-Headers"] = EXPOSED

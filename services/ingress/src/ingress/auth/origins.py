"""Which web pages may use this server: one allow-list for HTTP (CORS) and for sockets."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingress.auth.development import check_own_host
from ingress.errors import ProblemError, forbidden, problem_response

_SCHEMES = ("http", "https")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Origins:
    """The origins that may read our answers and write: those of the list, and our own."""

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        self._allowed = allowed

    def try_foreign(self, headers: Headers) -> str | None:
        """The Origin of a request that comes from the page of a stranger; None for all other requests.

        Our own origin is told by its host, because a proxy may speak TLS for us.
        """
        origins, hosts = headers.getlist("origin"), headers.getlist("host")
        for origin in origins:
            scheme, _, authority = origin.partition("://")
            own = scheme in _SCHEMES and authority != "" and hosts == [authority]
            if not own and (origin not in self._allowed or len(origins) > 1):
                return origin or "null"
        return None

    def try_allowed(self, headers: Headers) -> str | None:
        """The Origin of a request, when it stands in the list."""
        origins = headers.getlist("origin")
        return origins[0] if len(origins) == 1 and origins[0] in self._allowed else None

    def check_page(self, headers: Headers) -> None:
        """Refuse what a stranger's page sends (403): writes over HTTP, and sockets."""
        if self.try_foreign(headers) is not None:
            raise forbidden("This origin may not use this server.")
        if not headers.getlist("origin") and "cross-site" in headers.getlist("sec-fetch-site"):
            raise forbidden("Requests from pages of other sites are not accepted.")


# The layer around the application that answers to browsers which page may use it (the Fetch standard's CORS). No
# answer depends on a cookie and none ever allows credentials, so a page shows who it speaks for by a header.

METHODS = "GET, POST, PATCH, DELETE"
REQUEST_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, If-Range, Last-Event-ID, Range"
)
EXPOSED = (
    "Accept-Ranges, Content-Disposition, Content-Range, ETag, Location, RateLimit, RateLimit-Policy, Retry-After,"
    " WWW-Authenticate"
)
MAX_AGE_S = 600


class Cors:
    """ASGI middleware: preflights are answered before anything is looked up, and strangers' writes are refused.

    Every answer says how it may be kept.
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
                # DNS rebinding: also what needs no credential is not for the page of a stranger.
                check_own_host(headers)
            if scope["method"] not in SAFE_METHODS:
                self._origins.check_page(headers)
        except ProblemError as refusal:
            await problem_response(refusal)(scope, receive, send_marked)
        else:
            await self._app(scope, receive, send_marked)

    def _answer_preflight(self, headers: Headers) -> Response:
        """The same for every path: it says nothing of what is there."""
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
    # What is somebody's is kept by no cache; files, the page and streams say otherwise themselves.
    headers.setdefault("Cache-Control", "no-store")
    headers.setdefault("X-Content-Type-Options", "nosniff")
    if allowed is not None:
        headers["Access-Control-Allow-Origin"] = allowed
        headers["Access-Control-Expose-Headers"] = EXPOSED

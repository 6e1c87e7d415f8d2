"""Which web pages may use this server: one allow-list for HTTP and for sockets."""

from starlette.datastructures import Headers

from ingress.errors import forbidden

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

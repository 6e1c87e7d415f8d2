"""Development mode: the user of requests without a token, and the checks that reject requests of web pages."""

from starlette.datastructures import Headers

from ingress.auth.callers import is_user_name
from ingress.errors import forbidden, malformed

DEV_USER = "dev"
DEV_USER_HEADER = "x-dev-user"

_OWN_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_FORWARDING = ("forwarded", "via", "x-real-ip")
_OWN_SITES = frozenset({"none", "same-origin"})


def check_local_request(headers: Headers) -> None:
    """Reject requests that are not from this machine's own user; otherwise any web page could run turns (403).

    Origin or Sec-Fetch-Site reveal a foreign page, Host reveals DNS rebinding, and forwarding headers reveal a proxy.
    """
    own = f"http://{check_own_host(headers)}"
    if any(origin != own for origin in headers.getlist("origin")):
        raise forbidden("Development mode accepts no requests from other origins.")
    if any(site not in _OWN_SITES for site in headers.getlist("sec-fetch-site")):
        raise forbidden("Development mode accepts no cross-site requests.")
    if any(name in _FORWARDING or name.startswith("x-forwarded-") for name in headers):
        raise forbidden("Development mode does not work behind a proxy.")


def check_own_host(headers: Headers) -> str:
    """The Host header, which must name this machine. Raises 403: a rebound foreign page would send its own name."""
    hosts = headers.getlist("host")
    if len(hosts) != 1 or _host_name(hosts[0]) not in _OWN_HOSTS:
        raise forbidden("Development mode accepts requests for localhost, 127.0.0.1 and [::1] only.")
    return hosts[0]


def load_dev_user(headers: Headers) -> str:
    """The user of a request without a token; `X-Dev-User` names another than `dev`."""
    names = headers.getlist(DEV_USER_HEADER)
    if not names:
        return DEV_USER
    if len(names) > 1 or not is_user_name(names[0]):
        raise malformed("The header X-Dev-User must contain one user name.")
    return names[0]


def _host_name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if not colon or (name.startswith("[") and not name.endswith("]")):
        return host
    return name if port.isascii() and port.isdigit() else host

"""The hosts and ports to which programs of an execution profile may connect."""

import re
from dataclasses import dataclass
from typing import Final

HTTPS_PORT: Final = 443
MODEL_HOST: Final = "model.everturn"
"""The model server of coding agents, at port 80. The worker serves it itself: the name is never resolved."""
MODEL_PORT: Final = 80
MODEL_SERVER: Final = f"{MODEL_HOST}:{MODEL_PORT}"
MAX_HOST_CHARS: Final = 253
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = re.compile(rf"(?:{_LABEL}\.)+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])", re.ASCII)
"""At least two labels, and the last one begins with a letter: no spelling of an address is a host, nor is `localhost`
or another name that a resolver could complete."""


@dataclass(frozen=True, slots=True)
class Destination:
    """One entry of a list of hosts. With `subdomains` all names below `host` are allowed, but not `host` itself."""

    host: str
    port: int
    subdomains: bool = False

    def allows(self, host: str, port: int) -> bool:
        """Whether a host, as `normalize_host` returns it, and a port belong to this entry."""
        return port == self.port and (host.endswith(f".{self.host}") if self.subdomains else host == self.host)

    def __str__(self) -> str:
        return f"{'*.' if self.subdomains else ''}{self.host}:{self.port}"


def normalize_host(text: str) -> str:
    """A host name in lower case and without a final dot. Raises ValueError for everything else, such as addresses."""
    host = text.lower().removesuffix(".")
    if len(host) > MAX_HOST_CHARS or not _HOST.fullmatch(host):
        raise ValueError(f"{text[:80]!a} is not the full name of a host in ASCII, such as api.example.com")
    return host


def parse_destination(text: str) -> Destination:
    """`host`, `*.host` or either with `:port`; without a port it is 443. Raises ValueError."""
    name, colon, digits = text.partition(":")
    if colon and not (digits.isascii() and digits.isdecimal() and len(digits) <= 5 and 0 < int(digits) < 1 << 16):
        raise ValueError(f"{text[:80]!a} has no port from 1 to 65535 after its colon")
    subdomains = name.startswith("*.")
    return Destination(normalize_host(name[2 * subdomains :]), int(digits) if colon else HTTPS_PORT, subdomains)

"""The bucket that an s3 URL names, and how to talk to it. Keys are never part of such a URL."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from everturn.errors import Invalid

FORM = "s3://bucket/prefix?endpoint=http://host:port&region=...&public=...&style=path|virtual&timeout=20"
DEFAULT_TIMEOUT_S = 20.0
MAX_TIMEOUT_S = 300.0
_OPTIONS = frozenset({"endpoint", "public", "region", "style", "timeout"})


@dataclass(frozen=True, slots=True)
class S3Place:
    """`prefix` is empty or ends with a slash. `endpoint` None is the provider's own; `public` is that of browsers."""

    bucket: str
    prefix: str
    endpoint: str | None
    public: str | None
    region: str | None
    style: Literal["path", "virtual", "auto"]
    timeout_s: float


def parse_s3_url(url: str) -> S3Place:
    """Raises Invalid, without showing what may be a secret: passwords in the URL are refused."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.fragment:
        raise Invalid("OBJECTS_URL holds a password or a fragment; keys come from AWS_ACCESS_KEY_ID and the like.")
    options = _read_options(parts.query)
    prefix = unquote(parts.path).strip("/")
    if not parts.netloc or ":" in parts.netloc or any(name in ("", ".", "..") for name in prefix.split("/") if prefix):
        raise Invalid(f"OBJECTS_URL names no bucket and prefix; expected {FORM}.")
    endpoint = options.get("endpoint")
    return S3Place(
        bucket=parts.netloc,
        prefix=f"{prefix}/" if prefix else "",
        endpoint=endpoint,
        public=options.get("public", endpoint),
        region=options.get("region"),
        style=_read_style(options.get("style", "path" if endpoint else "auto")),
        timeout_s=_read_timeout(options.get("timeout", "")),
    )


def _read_options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, strict_parsing=True, max_num_fields=len(_OPTIONS)) if query else []
    except ValueError as error:
        raise Invalid(f"The options of OBJECTS_URL can't be read; expected {FORM}.") from error
    options = dict(pairs)
    if len(options) < len(pairs) or not options.keys() <= _OPTIONS:
        raise Invalid(f"OBJECTS_URL has an option twice or an unknown one; there are {', '.join(sorted(_OPTIONS))}.")
    for name in ("endpoint", "public"):
        if name in options:
            _check_address(name, options[name])
    return options


def _check_address(name: str, address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc or parts.query:
        raise Invalid(f"The {name} in OBJECTS_URL must be http://host:port or https://host, without a password.")


def _read_style(text: str) -> Literal["path", "virtual", "auto"]:
    match text:
        case "path" | "virtual" | "auto":
            return text
        case _:
            raise Invalid("The style in OBJECTS_URL is path, virtual or auto.")


def _read_timeout(text: str) -> float:
    try:
        seconds = float(text or DEFAULT_TIMEOUT_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise Invalid(f"The timeout in OBJECTS_URL is above 0 and at most {MAX_TIMEOUT_S:g} seconds.")
    return seconds

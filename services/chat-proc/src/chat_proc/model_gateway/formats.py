"""The APIs that agents call: their paths, what a request asks for, what must not be passed on, and their errors.

A request is parsed, changed where it must be, and written again, so what the server of the model reads is exactly what
was checked here. Fields that are not known here are kept.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from json import scanner
from typing import Any, Final, Literal, NoReturn, cast

from chat_proc.models.replies import read_fields
from chat_proc.models.upstreams import OPENAI_URL, Upstream, WireProtocol
from everturn.models.tokens import FIRST_RATIO, estimate_media_tokens

Api = Literal["messages", "count_tokens", "chat", "responses"]


@dataclass(frozen=True, slots=True)
class Route:
    """One API. `path` is the agent's, and `upstream_path` is added to the base URL of the model's server. Calls that
    are not `metered` are free."""

    api: Api
    protocol: WireProtocol
    path: str
    upstream_path: str
    metered: bool = True


ROUTES: Final[Mapping[str, Route]] = {
    route.path: route
    for route in (
        Route("messages", "anthropic", "/v1/messages", "/v1/messages"),
        Route("count_tokens", "anthropic", "/v1/messages/count_tokens", "/v1/messages/count_tokens", metered=False),
        Route("chat", "openai", "/v1/chat/completions", "/chat/completions"),
        Route("responses", "openai", "/v1/responses", "/responses"),
    )
}
OWNERS: Final[Mapping[WireProtocol, str]] = {"anthropic": "Anthropic's", "openai": "OpenAI's"}

MAX_ELEMENTS: Final = 500_000
"""Brackets, braces and commas of a body, also those in its texts. As many are in 7 MB of code, which no model reads at
once. They bound the memory of the parsed body to about 30 MB, and the time of parsing it to a second in a thread."""
AT_ONCE_ELEMENTS: Final = 16_000
AT_ONCE_BYTES: Final = 256 * 1024
"""Parsed and written by one call of a C function, which keeps the event loop waiting for up to 5 ms even from a
thread. Larger bodies are parsed value by value: slower, but other threads run in between."""

SMALL: Final = re.compile(r"(?<![a-z])(?:haiku|mini|nano|small|flash|lite)(?![a-z])", re.IGNORECASE)
"""What names of small models have in common."""

_MIN_THINKING_TOKENS: Final = 1_024
"""Of Anthropic's API."""
_AGENT_TOOLS: Final = ("bash_", "computer_", "memory_", "text_editor_", "tool_search_tool_")
"""The beginnings of the types of Anthropic's tools that the agent runs, or that only search the request itself. The
provider runs all others."""
_OPENAI_AGENT_TOOLS: Final = (
    "apply_patch",
    "computer",
    "computer_use_preview",
    "custom",
    "function",
    "local_shell",
    "namespace",
    "tool_search",
)
_OWN_SOURCES: Final = ("base64", "text", "content")
"""Of Anthropic's images and documents: those whose content is in the request."""
_OPENAI_FILES: Final = ("computer_screenshot", "file", "image_url", "input_file", "input_image")
_TOKEN_FIELDS: Final[Mapping[Api, tuple[str, ...]]] = {
    "messages": ("max_tokens",),
    "count_tokens": (),
    "chat": ("max_completion_tokens", "max_tokens"),
    "responses": ("max_output_tokens",),
}
_USUAL_TIERS: Final = (None, "auto", "default", "flex", "standard", "standard_only")
"""Values of `service_tier` that cost what the model's card says, or less."""


class RequestRefused(Exception):
    """A request is not passed on; the text is for the agent."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Target:
    """The model that gets a request. `limit_reply` returns how many of the tokens that were asked for it may write."""

    model: str
    upstream: Upstream
    limit_reply: Callable[[int], int]
    most_tokens: int


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request as its model's server gets it. `asked` is the model that the agent named. `input_tokens` is an
    estimate."""

    asked: str
    body: bytes
    streams: bool
    max_tokens: int
    input_tokens: int


def prepare_request(route: Route, body: bytes, target: Callable[[str], Target]) -> PreparedRequest:
    """Check a body and write it for the model that `target` returns for the asked name. Takes about 20 ms for each MB.

    Raises RequestRefused, also from `target`.
    """
    fields = parse_object(body)
    asked = fields.get("model")
    if not isinstance(asked, str) or not asked:
        raise RequestRefused(400, "The field `model` must be the name of a model.")
    chosen = target(asked)
    try:
        media = _check_content(route, fields)
    except RecursionError as error:
        raise RequestRefused(400, "The body is nested too deeply.") from error
    _check_options(fields)
    _check_tools(route, fields)
    fields["model"] = chosen.model
    max_tokens = _limit_reply(route, fields, chosen)
    streams = fields.get("stream") is True
    if route.api == "chat" and streams:
        fields["stream_options"] = {**read_fields(fields.get("stream_options")), "include_usage": True}
    if route.api == "responses":
        # Otherwise the provider would keep the conversation, also after its erasure here.
        fields.setdefault("store", False)
    written = _write(fields, is_large=_is_large(body))
    chars = max(0, len(written) - media.chars)
    return PreparedRequest(asked, written, streams, max_tokens, FIRST_RATIO.tokens_for(chars) + media.tokens)


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in these bytes. Raises RequestRefused."""
    if len(body) > MAX_ELEMENTS and _count_elements(body) > MAX_ELEMENTS:
        raise RequestRefused(413, f"The body has more than {MAX_ELEMENTS:,} elements.")
    decoder = _YIELDING_DECODER if _is_large(body) else _DECODER
    try:
        value: object = decoder.decode(body.decode("utf-8"))
    except RecursionError as error:
        raise RequestRefused(400, "The body is nested too deeply.") from error
    except ValueError as error:
        raise RequestRefused(400, f"The body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise RequestRefused(400, "The body must be a JSON object.")
    return cast("dict[str, Any]", value)


def _count_elements(body: bytes) -> int:
    return sum(body.count(each) for each in (b"[", b"{", b","))


def _is_large(body: bytes) -> bool:
    return len(body) > AT_ONCE_BYTES or _count_elements(body) > AT_ONCE_ELEMENTS


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it contains {name}")


class _YieldingDecoder(json.JSONDecoder):
    """Parses value by value, so that other threads run in between."""

    def __init__(self) -> None:
        super().__init__(parse_constant=_refuse_constant)
        make_scanner: Callable[[object], Any] = vars(scanner)["py_make_scanner"]
        self.scan_once = make_scanner(self)


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_YIELDING_DECODER: Final = _YieldingDecoder()
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ASCII_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _write(fields: Mapping[str, Any], *, is_large: bool) -> bytes:
    try:
        try:
            return _encode(_ENCODER, fields, is_large=is_large)
        except UnicodeEncodeError:
            # Lone surrogates have an escape in JSON, but no bytes in UTF-8.
            return _encode(_ASCII_ENCODER, fields, is_large=is_large)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"The body can't be passed on: {error}.") from error


def _encode(encoder: json.JSONEncoder, fields: Mapping[str, Any], *, is_large: bool) -> bytes:
    if is_large:
        return b"".join(piece.encode() for piece in encoder.iterencode(fields))
    return encoder.encode(fields).encode()


def _limit_reply(route: Route, fields: dict[str, Any], target: Target) -> int:
    """Bound the length of the reply, and set it if the agent has not."""
    names = _TOKEN_FIELDS[route.api]
    if not names:
        return 0
    given = [name for name in names if fields.get(name) is not None]
    if not given:
        # Other servers than OpenAI's may know the older name only, which its reasoning models reject.
        older = route.api == "chat" and target.upstream.base_url != OPENAI_URL
        fields[names[-1] if older else names[0]] = target.most_tokens
        return target.most_tokens
    for name in given:
        if type(fields[name]) is not int or fields[name] < 0:
            raise RequestRefused(400, f"The field `{name}` must be a number of tokens.")
        fields[name] = min(fields[name], target.limit_reply(fields[name]))
    most: int = max(fields[name] for name in given)
    if route.api == "messages":
        _limit_thinking(fields, most)
    return most


def _limit_thinking(fields: dict[str, Any], max_tokens: int) -> None:
    """Anthropic's API rejects a reply that is not longer than its thinking."""
    thinking = read_fields(fields.get("thinking"))
    budget = thinking.get("budget_tokens")
    if type(budget) is not int or budget < max_tokens:
        return
    if max_tokens > _MIN_THINKING_TOKENS:
        fields["thinking"] = {**thinking, "budget_tokens": max_tokens - 1}
    else:
        fields["thinking"] = {"type": "disabled"}


def _check_options(fields: Mapping[str, Any]) -> None:
    """Refuse what costs more than the counted tokens say. Raises RequestRefused."""
    refused = (
        ("background", bool(fields.get("background")), "replies are not made in the background"),
        ("n", fields.get("n") not in (None, 1), "a request has one reply"),
        ("speed", fields.get("speed") not in (None, "standard"), "only the standard speed can be used"),
        ("service_tier", fields.get("service_tier") not in _USUAL_TIERS, "only the usual tiers can be used"),
    )
    for name, is_refused, why in refused:
        if is_refused:
            raise RequestRefused(400, f"The field `{name}` can't have this value here: {why}.")


def _check_tools(route: Route, fields: Mapping[str, Any]) -> None:
    """Refuse tools that the provider runs: they reach hosts that the sandbox does not, and no token counts them. Raises
    RequestRefused."""
    for name in ("mcp_servers", "web_search_options", "container", "prompt"):
        if fields.get(name):
            raise RequestRefused(400, f"The field `{name}` can't be used here: the provider would run tools.")
    for tool in _list(fields.get("tools")):
        kind = read_fields(tool).get("type")
        if route.protocol == "anthropic":
            is_agents = kind in (None, "custom") or (isinstance(kind, str) and kind.startswith(_AGENT_TOOLS))
        else:
            is_agents = kind in _OPENAI_AGENT_TOOLS
        if not is_agents:
            named = json.dumps(kind)[:80]
            raise RequestRefused(
                400, f"The tool {named} can't be used here, because the provider would run it. Remove it."
            )


@dataclass(slots=True)
class _Media:
    """Files in a request: the characters of their base64, and an estimate of their tokens."""

    chars: int = 0
    tokens: int = 0

    def add(self, data: object, mime: str) -> None:
        size = len(data) if isinstance(data, str) else 0
        self.chars += size
        self.tokens += estimate_media_tokens(mime, size * 3 // 4)


def _check_content(route: Route, fields: Mapping[str, Any]) -> _Media:
    """Measure the files in the messages. Raises RequestRefused for those that are not in the request itself: to name an
    address is a way out of the sandbox, and stored files are the operator's."""
    media = _Media()
    for block in _walk([fields.get("system"), fields.get("messages"), fields.get("input")]):
        kind = block.get("type")
        if route.protocol == "anthropic" and kind in ("image", "document", "container_upload"):
            source = read_fields(block.get("source"))
            if source.get("type") not in _OWN_SOURCES:
                raise RequestRefused(400, f"Send the content of the {kind} in the request, as base64.")
            media.add(source.get("data"), _find_mime(kind))
        elif route.protocol == "openai" and kind in _OPENAI_FILES:
            _check_openai_file(block, kind, media)
    return media


def _check_openai_file(block: Mapping[str, Any], kind: str, media: _Media) -> None:
    image = block.get("image_url")
    url: object = read_fields(cast("object", image)).get("url") if isinstance(image, dict) else image
    file = read_fields(block.get("file")) if kind == "file" else block
    named = any(file.get(name) is not None for name in ("file_id", "file_url"))
    if named or (url is not None and not (isinstance(url, str) and url.startswith("data:"))):
        raise RequestRefused(400, "Send the content of files and images in the request, as a data URL.")
    media.add(url if url is not None else file.get("file_data"), _find_mime(kind))


def _find_mime(kind: str) -> str:
    """Images cost the same whatever their type is; documents are usually PDFs."""
    return "application/pdf" if kind in ("document", "file", "input_file") else "image/png"


def _walk(values: list[object]) -> Iterator[Mapping[str, Any]]:
    """All blocks of messages, also those in the results of tools, but not what a model wrote as arguments."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += cast("list[object]", value)
        elif isinstance(value, dict):
            block = cast("Mapping[str, Any]", value)
            yield block
            waiting += [block.get("content"), block.get("output"), read_fields(block.get("source")).get("content")]


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


_KINDS: Final[Mapping[WireProtocol, Mapping[int, str]]] = {
    "anthropic": {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        502: "api_error",
        504: "timeout_error",
    },
    "openai": {403: "permission_error", 429: "rate_limit_error", 502: "server_error", 504: "server_error"},
}


def build_error(protocol: WireProtocol, status: int, message: str) -> bytes:
    """The body of an error as the provider's SDK reads it."""
    kind = _KINDS[protocol].get(status, "invalid_request_error")
    if protocol == "anthropic":
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()


def build_model(name: str) -> dict[str, Any]:
    """One model of a list, with the fields of both providers."""
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "owned_by": "everturn",
    }


def build_model_list(names: list[str]) -> dict[str, Any]:
    """The list of these models, with the fields of both providers."""
    data = [build_model(name) for name in names]
    return {"object": "list", "data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}

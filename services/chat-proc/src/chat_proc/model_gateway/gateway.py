"""The only model server of a coding agent: it passes requests of a run on to the operator's server with the operator's
key, adds what they cost to the turn, and records them.

It speaks the formats of the providers, so agents use it unchanged. Nothing that identifies the operator enters the
sandbox, and of what the agent sends, only the body and the version headers of Anthropic's API leave it.
"""

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol, cast

import h11
import httpx2
import structlog

from chat_proc.model_gateway.connection import ClientGone, Connection, RequestHead
from chat_proc.model_gateway.exchanges import (
    MAX_REPLY_BYTES,
    Exchange,
    ExchangeEnd,
    ExchangeHead,
    build_record,
)
from chat_proc.model_gateway.formats import (
    OWNERS,
    ROUTES,
    SMALL,
    PreparedRequest,
    RequestRefused,
    Route,
    Target,
    build_error,
    build_model,
    build_model_list,
    parse_object,
    prepare_request,
)
from chat_proc.model_gateway.usage import ReplyMeter
from chat_proc.models.bounded_http import TIMEOUT
from chat_proc.models.calls import build_usage_event, describe_usage, open_call
from chat_proc.models.cards import price_usage
from chat_proc.models.endpoints import Endpoint
from chat_proc.models.replies import TRANSPORT, build_failure, build_transport_failure, read_fields
from chat_proc.models.roles import ModelRoles
from chat_proc.models.streams import REPLY_TIMEOUT_S
from chat_proc.models.upstreams import Upstream, WireProtocol, find_upstream
from everturn.core.cancellation import Stopped, keep_cancellation, run_until
from everturn.core.clock import iso
from everturn.core.http_bodies import build_event_hooks, check_size
from everturn.core.logging import Redactor
from everturn.core.threads import ON_LOOP_SIZE
from everturn.core.tracing import NO_TRACING, Attributes, Span, Tracing
from everturn.models.port import ModelFailed, ModelRequest, ModelTraits
from everturn.turns.model import UsageEvent

_log = structlog.get_logger(__name__)

ROLE: Final = "coding"
"""The purpose of the calls in the ledger."""
MAIN_NAME: Final = "everturn"
SMALL_NAME: Final = "everturn-small"

_MIB: Final = 1024 * 1024
MAX_ERROR_BYTES: Final = 64 * 1024
"""Of an error of the model's server."""
RETRY_AFTER_S: Final = 2
"""What an agent is asked to wait before it repeats a request that did not reach the model's server."""
MAX_CONNECTIONS: Final = 256
"""Of a worker to all servers of models together."""
LARGE_AT_ONCE: Final = 2
"""Bodies above 64 KiB that a worker parses at once: each has four times its size in memory meanwhile."""
ANTHROPIC_VERSION: Final = "2023-06-01"

_PASSED_TO_UPSTREAM: Final = ("anthropic-beta", "anthropic-version")
_VERSIONS: Final = re.compile(r"[A-Za-z0-9 ,._-]{1,2000}")
_PASSED_TO_AGENT: Final = (
    "content-type",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "x-request-id",
    "x-should-retry",
)
_JSON: Final[Mapping[str, str]] = {"Content-Type": "application/json"}
_FINAL: Final[Mapping[str, str]] = {"x-should-retry": "false"}


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """What one run may use; further connections and requests wait.

    `idle_s` is how long a connection may be silent before a request, and how long a request may take to arrive.
    `held_bytes` are those of the bodies of all its open requests. After `recorded_bytes`, records have no bodies.
    """

    at_once: int = 8
    requests: int = 2_000
    body_bytes: int = 32 * _MIB
    held_bytes: int = 64 * _MIB
    reply_bytes: int = 64 * _MIB
    recorded_bytes: int = 512 * _MIB
    idle_s: float = 120.0
    reply_s: float = REPLY_TIMEOUT_S


LIMITS: Final = GatewayLimits()


class GatewayTurn(Protocol):
    """The turn whose budget the calls use."""

    def explain_cap(self) -> str:
        """Why the turn can make no more calls; empty if it can."""
        ...

    def record_usage(self, usage: UsageEvent) -> None:
        """Record the usage of a model call; the next commit writes it."""
        ...

    def keep_exchange(self, run: str, number: int, size: int, build: Callable[[], bytes]) -> None:
        """Save the record of a call beside the turn; never waits. `build` takes time in proportion to `size` bytes."""
        ...


@dataclass(frozen=True, slots=True)
class GatewayModel:
    """A model that agents can use. `role` is the name under which the operator configured it."""

    role: str
    traits: ModelTraits
    upstream: Upstream


class ModelGateways:
    """Opens the gateways of a worker's runs, which share its HTTP client."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        environment: Mapping[str, str],
        endpoints: Mapping[str, Endpoint],
        *,
        redactor: Redactor,
        tracing: Tracing = NO_TRACING,
        limits: GatewayLimits = LIMITS,
    ) -> None:
        self.client = client
        self.redactor = redactor
        self.tracing = tracing
        self.limits = limits
        self.large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._environment = environment
        self._endpoints = endpoints

    def find_model(self, roles: ModelRoles, role: str) -> GatewayModel:
        """The model of a role. Raises BadModelSetting if agents can't use it, and BadConfig."""
        upstream = find_upstream(roles.choice(role), self._environment, self._endpoints)
        return GatewayModel(role, roles.model(role).traits, upstream)

    def open(
        self,
        main: GatewayModel,
        small: GatewayModel | None,
        turn: GatewayTurn,
        *,
        run: str,
        max_output_tokens: int,
        about: Attributes | None = None,
        main_name: str = MAIN_NAME,
    ) -> "ModelGateway":
        """The gateway of one run. `run` identifies it among those of its turn, `about` is from `describe_turn`, and
        `max_output_tokens` is the limit of each reply. The agent knows the model as `main_name`."""
        return ModelGateway(
            self,
            main,
            small,
            turn,
            run=run,
            max_output_tokens=max_output_tokens,
            about=about or {},
            main_name=main_name,
        )


@asynccontextmanager
async def open_gateways(
    environment: Mapping[str, str],
    endpoints: Mapping[str, Endpoint],
    *,
    redactor: Redactor,
    tracing: Tracing = NO_TRACING,
    limits: GatewayLimits = LIMITS,
) -> AsyncGenerator[ModelGateways]:
    """With a client that is closed at the end, when no run uses it any more."""
    hooks = build_event_hooks(
        lambda pieces, _: check_size(pieces, limits.reply_bytes), lambda error: httpx2.ReadError(error.detail)
    )
    connections = httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
    async with httpx2.AsyncClient(
        event_hooks=hooks, timeout=TIMEOUT, limits=connections, follow_redirects=False
    ) as client:
        yield ModelGateways(client, environment, endpoints, redactor=redactor, tracing=tracing, limits=limits)


class _Passing:
    """A request while it is passed on, and what is known of its reply."""

    def __init__(self, number: int, route: Route, model: GatewayModel, prepared: PreparedRequest) -> None:
        self.number = number
        self.route = route
        self.model = model
        self.prepared = prepared
        self.end: ExchangeEnd = "cancelled"
        self.status: int | None = None
        self.media_type = ""
        self.meter: ReplyMeter | None = None
        self.is_abandoned = True
        """Whether the call was ended here, although the provider may still have worked on it."""
        self._sent_at = datetime.now(UTC)
        self._began_s = time.monotonic()
        self._answered_s: float | None = None
        self._reply: list[bytes] = []
        self._kept = 0
        self._size = 0

    def note_head(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.media_type = response.headers.get("Content-Type", "")[:200]
        self._answered_s = time.monotonic()

    def note_failure(self, error: ModelFailed | TimeoutError) -> None:
        self.is_abandoned = isinstance(error, TimeoutError)
        if self.end != "complete":
            self.end = "failed" if self.status is None or self.status >= 300 else "cut"

    def note_piece(self, piece: bytes) -> None:
        kept = piece[: MAX_REPLY_BYTES - self._kept]
        if kept:
            self._reply.append(kept)
        self._kept += len(kept)
        self._size += len(piece)

    def build_usage(self) -> UsageEvent | None:
        """What the provider charges, as far as it is known; None if it charges nothing."""
        traits = self.model.traits
        if not self.route.metered or (self.status or 200) >= 300:
            return None
        if self.meter is None:
            if not self.is_abandoned:
                return None
            self.meter = ReplyMeter(self.route.api, is_stream=True)
        elif not (self.is_abandoned or self.end == "complete" or self.meter.has_content):
            return None
        usage = price_usage(self.meter.build_usage(self.prepared.input_tokens), traits)
        return build_usage_event(traits.ledger_name, ROLE, usage)

    def build_exchange(self, run: str, usage: UsageEvent | None, *, has_bodies: bool) -> Exchange:
        request, reply = (self.prepared.body, b"".join(self._reply)) if has_bodies else (b"", b"")
        head = ExchangeHead(
            run=run,
            number=self.number,
            path=self.route.path,
            asked=self.prepared.asked[:200],
            model=self.model.traits.ledger_name,
            sent_at=iso(self._sent_at),
            status=self.status,
            media_type=self.media_type,
            end=self.end,
            answered_ms=None if self._answered_s is None else _count_ms(self._began_s, self._answered_s),
            ended_ms=_count_ms(self._began_s, time.monotonic()),
            request_bytes=len(request),
            kept_bytes=len(reply),
            reply_bytes=self._size,
            usage=usage,
        )
        return Exchange(head, request, reply)


class ModelGateway:
    """The model server of one run. `serve` runs for each of its connections."""

    def __init__(
        self,
        shared: ModelGateways,
        main: GatewayModel,
        small: GatewayModel | None,
        turn: GatewayTurn,
        *,
        run: str,
        max_output_tokens: int,
        about: Attributes,
        main_name: str,
    ) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._main = main
        self._small = small
        self._turn = turn
        # A call that is repeated after a crash leaves the records of the first attempt.
        self._run = f"{run}.{secrets.token_hex(4)}"
        self._max_output_tokens = max_output_tokens
        self._about = about
        self._names = [main_name] if small is None else [main_name, SMALL_NAME]
        self._slots = asyncio.Semaphore(self._limits.at_once)
        self._requests = 0
        self._held = 0
        self._recorded = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end, and close it. When this is cancelled, what was used by then is recorded."""
        connection = Connection(reader, writer)
        try:
            # A silent connection is closed without an answer, as servers do.
            with contextlib.suppress(ClientGone, TimeoutError):
                while await self._serve_next(connection):
                    pass
        finally:
            await connection.close()

    async def _serve_next(self, connection: Connection) -> bool:
        """Answer one request; False if the connection is to be closed."""
        protocol: WireProtocol = self._main.upstream.protocol
        try:
            head = await connection.read_head(self._limits.idle_s)
            if head is None:
                return False
            protocol = _find_protocol(head)
            async with self._slots:
                await self._answer(connection, head, protocol)
        except h11.RemoteProtocolError as error:
            # The state of the request is unknown, so no other one can follow.
            if not connection.has_answered:
                await self._refuse(connection, protocol, RequestRefused(error.error_status_hint, f"{error}."))
            return False
        return connection.try_begin_next()

    async def _answer(self, connection: Connection, head: RequestHead, protocol: WireProtocol) -> None:
        held = 0

        def hold(amount: int) -> None:
            nonlocal held
            held += amount
            self._held += amount
            self._check_size(held)
            if self._held > self._limits.held_bytes:
                raise RequestRefused(
                    429, "The open requests of this run are too large together.", retry_after_s=RETRY_AFTER_S
                )

        try:
            if (length := head.headers.get("content-length", "")).isdecimal():
                self._check_size(int(length))
            pieces = await connection.read_body(self._limits.idle_s, hold)
            route = ROUTES.get(head.path) if head.method == "POST" else None
            if route is None:
                await self._answer_page(connection, head)
            else:
                await self._pass_on(connection, route, head, pieces)
        except RequestRefused as refused:
            await self._refuse(connection, protocol, refused)
        finally:
            self._held -= held

    def _check_size(self, size: int) -> None:
        if size > self._limits.body_bytes:
            raise RequestRefused(413, f"The body has more than {self._limits.body_bytes // _MIB} MiB.")

    async def _answer_page(self, connection: Connection, head: RequestHead) -> None:
        if head.method not in ("GET", "HEAD"):
            raise RequestRefused(404, f"There is no {head.method[:20]} {head.path[:200]} here.")
        name = head.path.removeprefix("/v1/models/")
        if head.path == "/":
            body = b"{}"
        elif head.path == "/v1/models":
            body = json.dumps(build_model_list(self._names)).encode()
        elif head.path != name and name in self._names:
            body = json.dumps(build_model(name)).encode()
        else:
            raise RequestRefused(404, f"There is no {head.path[:200]} here.")
        await connection.answer(200, _JSON, body)

    async def _refuse(self, connection: Connection, protocol: WireProtocol, refused: RequestRefused) -> None:
        wait = {} if refused.retry_after_s is None else {"Retry-After": str(refused.retry_after_s)}
        retry = _FINAL if refused.retry_after_s is None else {}
        body = build_error(protocol, refused.status, refused.message)
        await connection.answer(refused.status, {**_JSON, **wait, **retry}, body)

    async def _pass_on(self, connection: Connection, route: Route, head: RequestHead, pieces: list[bytes]) -> None:
        """Raises RequestRefused before anything was sent."""
        if head.headers.get("content-encoding", "identity") != "identity":
            raise RequestRefused(415, "Send the body without Content-Encoding.")
        if self._requests >= self._limits.requests:
            raise RequestRefused(403, f"This run has made {self._limits.requests:,} requests, the limit.")
        if why := self._turn.explain_cap():
            raise RequestRefused(403, why)
        prepared = await self._prepare(route, pieces)
        pieces.clear()
        self._requests += 1
        passing = _Passing(self._requests, route, self._choose(route, prepared.asked), prepared)
        request = self._build_request(passing, head)
        ran = await run_until(
            connection.wait_gone(), self._call(connection, passing, request), name=f"model call of {self._run}"
        )
        if isinstance(ran, Stopped):
            raise ClientGone

    async def _prepare(self, route: Route, pieces: list[bytes]) -> PreparedRequest:
        def prepare() -> PreparedRequest:
            return prepare_request(route, b"".join(pieces), partial(self._find_target, route))

        if sum(map(len, pieces)) <= ON_LOOP_SIZE:
            return prepare()
        async with self._shared.large:
            return await asyncio.to_thread(prepare)

    def _choose(self, route: Route, asked: str) -> GatewayModel:
        """The model for a name that the agent knows, or uses by habit. Raises RequestRefused."""
        if self._small and SMALL.search(asked) and self._small.upstream.protocol == route.protocol:
            return self._small
        if self._main.upstream.protocol != route.protocol:
            raise RequestRefused(
                400,
                f"This agent speaks {OWNERS[route.protocol]} format, and the model of the role {self._main.role} "
                f"speaks {OWNERS[self._main.upstream.protocol]}. Choose another model for the role, or another agent.",
            )
        return self._main

    def _find_target(self, route: Route, asked: str) -> Target:
        model = self._choose(route, asked)

        def limit(tokens: int) -> int:
            return model.traits.limit_reply(min(tokens, self._max_output_tokens))

        return Target(model.traits.name, model.upstream, limit, limit(self._max_output_tokens))

    def _build_request(self, passing: _Passing, head: RequestHead) -> httpx2.Request:
        upstream, route = passing.model.upstream, passing.route
        passed: dict[str, str] = {}
        if route.protocol == "anthropic":
            given = {name: head.headers.get(name, "") for name in _PASSED_TO_UPSTREAM}
            passed = {name: value for name, value in given.items() if _VERSIONS.fullmatch(value)}
            passed.setdefault("anthropic-version", ANTHROPIC_VERSION)
        headers = {
            **_JSON,
            "Accept": "text/event-stream" if passing.prepared.streams else "application/json",
            "User-Agent": "Everturn/1.0",
            **passed,
            **upstream.headers,
        }
        beta = "?beta=true" if route.protocol == "anthropic" and head.query == "beta=true" else ""
        url = f"{upstream.base_url}{route.upstream_path}{beta}"
        return self._shared.client.build_request("POST", url, headers=headers, content=passing.prepared.body)

    async def _call(self, connection: Connection, passing: _Passing, request: httpx2.Request) -> None:
        """Pass a request on, and its reply back. A failure becomes the answer, or cuts the one that has begun."""
        try:
            with keep_cancellation(), self._open_call(passing) as span:
                try:
                    async with asyncio.timeout(self._limits.reply_s):
                        await self._exchange(connection, passing, request)
                except (ModelFailed, TimeoutError) as error:
                    passing.note_failure(error)
                    raise
                finally:
                    self._record(passing, span)
        except ModelFailed as failure:
            _log.warning(
                "A model call of a coding agent failed",
                model=passing.model.traits.ledger_name,
                run=self._run,
                kind=failure.kind,
                provider_text=failure.provider_text,
            )
            refused = RequestRefused(502, failure.detail, retry_after_s=RETRY_AFTER_S)
        except TimeoutError:
            refused = RequestRefused(
                504, f"The model's server took longer than {self._limits.reply_s:.0f} s.", retry_after_s=RETRY_AFTER_S
            )
        else:
            return
        if not connection.has_answered:
            await self._refuse(connection, passing.route.protocol, refused)
        elif passing.end == "cut":
            # Without the end of its body, the agent does not mistake the reply for a complete one.
            raise ClientGone

    def _open_call(self, passing: _Passing) -> AbstractContextManager[Span | None]:
        if not passing.route.metered:
            return nullcontext()
        request = ModelRequest((), passing.prepared.max_tokens)
        return open_call(self._shared.tracing, passing.model.traits, request, role=ROLE, turn=self._about)

    async def _exchange(self, connection: Connection, passing: _Passing, request: httpx2.Request) -> None:
        """Raises ModelFailed, also for an error of the model's server that was passed on, and ClientGone."""
        try:
            response = await self._shared.client.send(request, stream=True)
        except TRANSPORT as error:
            raise build_transport_failure(error) from error
        try:
            passing.note_head(response)
            headers = {name: response.headers[name] for name in _PASSED_TO_AGENT if name in response.headers}
            if response.status_code < 300:
                await self._pass_reply(connection, passing, response, headers)
            else:
                await self._pass_error(connection, passing, response, headers)
        finally:
            await response.aclose()

    async def _pass_reply(
        self, connection: Connection, passing: _Passing, response: httpx2.Response, headers: Mapping[str, str]
    ) -> None:
        is_stream = passing.media_type.lower().startswith("text/event-stream")
        passing.meter = meter = ReplyMeter(passing.route.api, is_stream=is_stream)
        await connection.begin_answer(response.status_code, headers)
        async with aclosing(_read_pieces(response)) as pieces:
            async for piece in pieces:
                passing.note_piece(piece)
                await meter.feed(piece)
                await connection.send_piece(piece)
        await meter.finish()
        passing.end = "complete"
        await connection.end_answer()

    async def _pass_error(
        self, connection: Connection, passing: _Passing, response: httpx2.Response, headers: Mapping[str, str]
    ) -> None:
        """The agent gets the status and the body of an error, but a redirect names an address of the operator."""
        status, now = response.status_code, datetime.now(UTC)
        if status < 400:
            raise build_failure(status=status, kind=None, message="", headers=response.headers, now=now)
        body = bytearray()
        async with aclosing(_read_pieces(response)) as pieces:
            async for piece in pieces:
                body += piece[: MAX_ERROR_BYTES - len(body)]
                if len(body) == MAX_ERROR_BYTES:
                    break
        passing.note_piece(bytes(body))
        passing.end = "complete"
        await connection.answer(status, headers, cast("bytes", self._shared.redactor.redact_value(bytes(body))))
        error = _read_error(bytes(body))
        kind = error.get("code") or error.get("type")
        raise build_failure(status=status, kind=kind, message=error.get("message"), headers=response.headers, now=now)

    def _record(self, passing: _Passing, span: Span | None) -> None:
        """Never waits, because the call may be cancelled."""
        usage = passing.build_usage()
        if usage is not None:
            self._turn.record_usage(usage)
            if span is not None:
                span.note(describe_usage(usage))
        exchange = passing.build_exchange(self._run, usage, has_bodies=self._recorded < self._limits.recorded_bytes)
        self._recorded += exchange.size
        build = partial(build_record, exchange, self._shared.redactor)
        self._turn.keep_exchange(self._run, passing.number, exchange.size, build)


async def _read_pieces(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """The bytes of a body. Raises ModelFailed."""
    try:
        async for piece in response.aiter_raw():
            yield piece
    except TRANSPORT as error:
        raise build_transport_failure(error) from error


def _read_error(body: bytes) -> Mapping[str, object]:
    """The error in the body of an error reply; empty if there is none."""
    try:
        return read_fields(parse_object(body).get("error"))
    except RequestRefused:
        return {}


def _find_protocol(head: RequestHead) -> WireProtocol:
    if route := ROUTES.get(head.path):
        return route.protocol
    return "anthropic" if "anthropic-version" in head.headers else "openai"


def _count_ms(began_s: float, ended_s: float) -> int:
    return round((ended_s - began_s) * 1000)

"""The application: routers, error translation and the OpenAPI document, assembled from ready parts."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route, WebSocketRoute

from everturn import __version__
from everturn.bundles.embedding import EmbedConfig
from everturn.bundles.operations import OperationQueue
from everturn.bundles.registry import BundleListing
from everturn.conversations.model import Conversations
from everturn.core.clock import Clock
from everturn.core.errors import EverturnError, problem
from everturn.core.failpoints import Failpoints
from everturn.core.ids import Ids
from everturn.core.loops import LOOPS
from everturn.core.readiness import CHECK_TIMEOUT_S, Part
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.core.ttl_cache import TtlCache
from everturn.events.stream import EventReader, EventWriter, Hints, Notifications, StreamMemory
from everturn.feedback.model import FeedbackStore
from everturn.files.objects import Objects
from everturn.files.ports import Artifacts
from everturn.history.repository import GitHistories
from everturn.knowledge.collections import CollectionBook
from everturn.lifecycle.exports import Exports
from everturn.lifecycle.forks import Forks
from everturn.limits.token_buckets import TokenBuckets
from everturn.mcp_connections.connections import ConnectionBook
from everturn.memory.embedder import Embedder
from everturn.memory.search import MemorySearch
from everturn.memory.user_memories import MemoryBook
from everturn.queue.model import Doorbells, Presences, Queue, QueueCaps
from everturn.skills.projects import ProjectSkillBook
from everturn.turns.inbox import Inbox
from everturn.turns.ports import Turns
from ingress import (
    bundle_operations,
    bundles,
    collections,
    connections,
    embed,
    feedback,
    guests,
    health,
    lifecycle,
    memory,
    search,
    skills,
    web,
    widgets,
)
from ingress.admission.edge import OuterMiddleware
from ingress.admission.limits import build_request_limits
from ingress.admission.queue_gate import WorkerPoolWatch, WorkGate
from ingress.admission.slots import OpenSlots
from ingress.attachments import endpoints as attachments
from ingress.attachments.antivirus import Antivirus
from ingress.attachments.intake import FileCaps, Intake
from ingress.attachments.structure.checks import StructureChecks
from ingress.auth.gate import AuthGate
from ingress.auth.origins import Cors
from ingress.auth.revocation import Recheck
from ingress.auth.signed_tokens import TokenSigner
from ingress.bounds import BOUNDS, DOWNLOADS_MAX, STREAM_QUEUE_BYTES, STREAMS_PART, Bounds
from ingress.bundle_operations import OperationCaller
from ingress.bundles import Bundles
from ingress.chat import endpoints as chat
from ingress.chat.schemas import MessageIn, SignalIn, build_caps
from ingress.chat.service import ChatService
from ingress.collections import CollectionService
from ingress.connections import ConnectionService
from ingress.conversations import endpoints as conversations
from ingress.conversations.round_context import RoundContexts
from ingress.conversations.service import ConversationService
from ingress.embed import Embedding
from ingress.errors import ProblemError, problem_response, translate_error
from ingress.feedback import FeedbackService
from ingress.fields import problem_of_validation
from ingress.files import endpoints as files
from ingress.files.service import FileService
from ingress.health import READINESS_KEEP_S, QueueWatch, ReadyOut, check_parts
from ingress.history import endpoints as history
from ingress.history import smart_http
from ingress.history.service import HistoryService
from ingress.lifecycle import ExportService, ForkService
from ingress.mcp import endpoints as mcp
from ingress.memory import MemoryService
from ingress.metrics import IngressMetrics
from ingress.openapi import docs
from ingress.openapi.document import OpenApi
from ingress.openapi.event_schemas import build_event_schemas
from ingress.search import SearchService
from ingress.settings import IngressSettings
from ingress.skills import SkillService
from ingress.sockets.calls import ChatCalls
from ingress.sockets.connection import SocketDependencies
from ingress.sockets.server import SocketServer, refuse_elsewhere
from ingress.stream import sse
from ingress.stream.feed import Feed, StreamEdge
from ingress.stream.hub import Hub
from ingress.stream.rows import StreamRows
from ingress.web import Bundle
from ingress.widgets import Widgets

TITLE = "Everturn ingress"


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the application; bootstrap chooses the drivers."""

    settings: IngressSettings
    bounds: Bounds
    auth: AuthGate
    signer: TokenSigner
    embed: EmbedConfig
    antivirus: Antivirus
    structure: StructureChecks
    conversations: Conversations
    inbox: Inbox
    turns: Turns
    feedback: FeedbackStore
    exports: Exports
    forks: Forks
    histories: GitHistories
    artifacts: Artifacts
    objects: Objects
    doorbells: Doorbells
    notifications: Notifications
    hints: Hints
    events: EventReader
    event_writer: EventWriter
    clock: Clock
    ids: Ids
    metrics: IngressMetrics
    check_database: Callable[[], Awaitable[None]]
    check_database_disk: Callable[[], Awaitable[None]]
    presences: Presences
    memories: MemoryBook
    collections: CollectionBook
    skills: ProjectSkillBook
    finder: MemorySearch
    embedder: Embedder
    buckets: TokenBuckets
    stream_memory: StreamMemory
    queue: Queue
    connections: ConnectionBook
    web: Bundle | None
    load_bundles: Callable[[], Awaitable[tuple[BundleListing, ...]]]
    operations: OperationQueue
    load_widget_file: Callable[[str, str, str], Awaitable[bytes]]
    tracing: Tracing = NO_TRACING


def build_app(parts: Parts) -> FastAPI:
    """Build the application. The caller must run `app.state.hub` while the application serves."""
    app = build_routes(max_files=parts.bounds.message_files)
    _add_services(app, parts)
    app.mount("/socket.io", app.state.sockets)
    app.router.routes.append(WebSocketRoute("/{path:path}", refuse_elsewhere))
    _add_error_handlers(app)
    app.add_middleware(OuterMiddleware, metrics=parts.metrics, monotonic=parts.clock.monotonic, tracing=parts.tracing)
    app.add_middleware(Cors, origins=parts.auth.origins, development=parts.settings.development)
    return app


def build_routes(*, max_files: int = BOUNDS.message_files) -> FastAPI:
    """Build the routes without their services; the OpenAPI document is generated from them."""
    app = FastAPI(
        title=TITLE,
        version=__version__,
        redirect_slashes=False,
        redoc_url=None,
        docs_url=None,
        # Generated clients use these names for their functions.
        generate_unique_id_function=_name_operation,
    )
    routers = (
        feedback.router,
        conversations.router,
        conversations.turn_router,
        lifecycle.router,
        history.router,
        history.file_router,
        smart_http.router,
        chat.router,
        chat.submit_router,
        chat.signal_router,
        attachments.router,
        bundles.router,
        bundle_operations.router,
        widgets.router,
        embed.router,
        memory.router,
        collections.router,
        collections.upload_router,
        skills.router,
        search.router,
        sse.router,
        sse.ticket_router,
        guests.router,
        connections.callback_router,
        connections.router,
        files.router,
        files.by_rn_router,
        mcp.router,
        health.router,
        docs.router,
        web.router,
        widgets.file_router,
        embed.page_router,
        embed.session_router,
    )
    for router in routers:
        app.include_router(router)
    app.state.event_schemas = build_event_schemas
    app.state.routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    app.openapi = OpenApi(app, app.openapi, forms=(MessageIn, SignalIn), max_files=max_files).build
    return app


def _name_operation(route: APIRoute) -> str:
    return route.name


def _add_services(app: FastAPI, parts: Parts) -> None:
    app.state.bounds = parts.bounds
    app.state.settings, app.state.auth, app.state.metrics = parts.settings, parts.auth, parts.metrics
    app.state.workers = WorkerPoolWatch(parts.presences, monotonic=parts.clock.monotonic)
    app.state.bundles = Bundles(parts.load_bundles, monotonic=parts.clock.monotonic)
    slots = OpenSlots(
        max_total=bundle_operations.OPEN,
        max_per_user=bundle_operations.OPEN_OF_PERSON,
        singular="operation",
        plural="operations",
    )
    app.state.operations = OperationCaller(parts.operations, slots)
    app.state.widgets = Widgets(parts.load_widget_file, parts.signer, parts.clock, parts.metrics)
    app.state.embedding = Embedding(parts.embed, parts.buckets, parts.metrics)
    intake = _build_intake(parts)
    app.state.chat = _build_chat(parts, intake, app.state.workers, app.state.bundles)
    app.state.collections = CollectionService(parts.collections, intake, parts.inbox, parts.ids)
    app.state.skills = SkillService(parts.skills, intake)
    app.state.request_limits = build_request_limits(
        parts.settings,
        parts.buckets,
        bad_credentials=parts.bounds.bad_credentials,
        metrics=parts.metrics,
        monotonic=parts.clock.monotonic,
    )
    app.state.conversations = ConversationService(
        conversations=parts.conversations,
        turns=parts.turns,
        artifacts=parts.artifacts,
        objects=parts.objects,
        histories=parts.histories,
        events=parts.event_writer,
        notifications=parts.notifications,
        queue=parts.queue,
        ids=parts.ids,
        bundles=app.state.bundles,
    )
    app.state.feedback = FeedbackService(parts.feedback, parts.clock)
    app.state.exports = ExportService(parts.exports)
    app.state.forks = ForkService(parts.forks, parts.ids, parts.clock)
    app.state.histories = HistoryService(parts.histories, parts.conversations)
    app.state.round_contexts = RoundContexts(parts.turns, parts.objects)
    app.state.memory = MemoryService(parts.memories)
    app.state.connections = ConnectionService(parts.connections, app.state.chat, app.state.bundles)
    app.state.search = SearchService(
        finder=parts.finder, conversations=parts.conversations, embedder=parts.embedder, clock=parts.clock
    )
    app.state.files = FileService(
        parts.artifacts, parts.objects, metrics=parts.metrics, redirects=parts.settings.files_redirect
    )
    app.state.downloads = OpenSlots(
        max_total=DOWNLOADS_MAX,
        max_per_user=parts.bounds.downloads_of_user,
        singular="download",
        plural="downloads",
    )
    app.state.reads = conversations.build_read_slots()
    app.state.streams = _build_streams(parts)
    app.state.hub = app.state.streams.hub
    app.state.sockets = _build_sockets(app, parts)
    app.state.queue_watch = QueueWatch(parts.queue, parts.metrics, monotonic=parts.clock.monotonic)
    app.state.web = parts.web
    app.state.readiness = _build_readiness(parts)


def _build_readiness(parts: Parts) -> TtlCache[ReadyOut]:
    needed = {
        "postgres": Part(parts.check_database),
        "postgres_disk": Part(parts.check_database_disk, required=False),
        "redis": Part(partial(parts.doorbells.check, limit_s=CHECK_TIMEOUT_S)),
        "redis memory": Part(parts.stream_memory.check, required=False),
        "objects": Part(parts.objects.check, note=parts.objects.kind),
        "file checks": Part(parts.structure.check_ready, required=False),
        "antivirus": Part(parts.antivirus.check, required=False, note=parts.antivirus.name),
        "loops": Part(LOOPS.check, required=False),
    }
    check = partial(check_parts, needed, parts.presences)
    return TtlCache(check, keep_s=READINESS_KEEP_S, monotonic=parts.clock.monotonic)


def _build_intake(parts: Parts) -> Intake:
    settings = parts.settings
    caps = FileCaps(
        settings.max_image_bytes, settings.max_doc_bytes, settings.max_doc_bytes, parts.bounds.message_files
    )
    return Intake(
        objects=parts.objects,
        antivirus=parts.antivirus,
        structure=parts.structure,
        caps=caps,
        ids=parts.ids,
        metrics=parts.metrics,
    )


def _build_chat(parts: Parts, intake: Intake, workers: WorkerPoolWatch, bundles: Bundles) -> ChatService:
    settings = parts.settings
    return ChatService(
        inbox=parts.inbox,
        notifications=parts.notifications,
        gate=_build_gate(parts, workers),
        intake=intake,
        ids=parts.ids,
        clock=parts.clock,
        metrics=parts.metrics,
        event_kinds=settings.taken_events,
        bundles=bundles,
        failpoints=Failpoints(settings.failpoint),
        tracing=parts.tracing,
    )


def _build_gate(parts: Parts, workers: WorkerPoolWatch) -> WorkGate:
    settings = parts.settings
    return WorkGate(
        doorbells=parts.doorbells,
        queue=parts.queue,
        memory=parts.stream_memory,
        workers=workers,
        caps=QueueCaps(settings.queue_max),
        metrics=parts.metrics,
        monotonic=parts.clock.monotonic,
        random=random.random,
    )


def _build_streams(parts: Parts) -> StreamEdge:
    settings = parts.settings
    rows = StreamRows(
        conversations=parts.conversations,
        turns=parts.turns,
        inbox=parts.inbox,
        queue=parts.queue,
        clock=parts.clock,
    )
    hub = Hub(
        reader=parts.events,
        hints=parts.hints,
        rows=rows,
        metrics=parts.metrics,
        queue_bytes=STREAM_QUEUE_BYTES,
    )
    feed = Feed(hub, heartbeat_s=parts.bounds.heartbeat_s, unix_now=lambda: parts.clock.now().timestamp())
    slots = OpenSlots(
        max_total=max(1, settings.connections_max // STREAMS_PART), max_per_user=parts.bounds.streams_of_user
    )
    recheck = Recheck(parts.auth.recheck, every_s=parts.bounds.reauthorize_s, monotonic=parts.clock.monotonic)
    return StreamEdge(hub=hub, feed=feed, slots=slots, recheck=recheck, send_timeout_s=parts.bounds.send_s)


def _build_sockets(app: FastAPI, parts: Parts) -> SocketServer:
    return SocketServer(
        SocketDependencies(
            auth=parts.auth,
            limits=app.state.request_limits,
            calls=ChatCalls(app.state.chat, app.state.conversations, build_caps(parts.settings, parts.bounds)),
            streams=app.state.streams,
            metrics=parts.metrics,
            clock=parts.clock,
            tracing=parts.tracing,
            message_bytes=parts.settings.message_max_bytes,
        )
    )


def _add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(EverturnError, _answer_everturn)


async def _answer_validation(_: Request, error: Exception) -> Response:
    return problem_response(problem_of_validation(cast(RequestValidationError, error).errors()))


async def _answer_http(request: Request, error: Exception) -> Response:
    if isinstance(error, ProblemError):
        return problem_response(error)
    refused = cast(HTTPException, error)
    titles = {404: "Not found", 405: "This method is not allowed here"}
    title = titles.get(refused.status_code, "The request was rejected")
    kind = {404: "not-found", 405: "method-not-allowed"}.get(refused.status_code, "refused")
    headers = {"Allow": find_methods(request)} if refused.status_code == 405 else refused.headers
    return problem_response(ProblemError(problem(kind, title, refused.status_code, ""), headers=headers))


def find_methods(request: Request) -> str:
    """The methods allowed at a request's path, by all routes that match it most specifically."""
    found: dict[int, set[str]] = {}
    for route in cast(list[Route], request.app.state.routes):
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            # Not the parameters of the match: they include those of the route that refused the request.
            found.setdefault(len(route.param_convertors), set()).update(route.methods or ())
    return ", ".join(sorted(found[min(found)])) if found else ""


async def _answer_everturn(_: Request, error: Exception) -> Response:
    translated = translate_error(cast(EverturnError, error))
    if translated is None:
        raise error
    return problem_response(translated)

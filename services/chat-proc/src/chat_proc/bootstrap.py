"""Assembles a worker: the only module that chooses drivers, models, tools and sandbox, and logs the reasons."""

import os
import secrets
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import structlog

from chat_proc.agent.kit import BundleKit, LoopDependencies
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bounds import BOUNDS, Bounds, count_connections
from chat_proc.bundles.folders import BundleFolders
from chat_proc.bundles.repositories import open_repositories
from chat_proc.bundles.versions import BundleLibrary
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.described import load_tools, open_tool_threads
from chat_proc.catalog.tool import Tool
from chat_proc.knowledge.collections import CollectionIndexer, CollectionReader
from chat_proc.knowledge.spaces import KnowledgePorts
from chat_proc.memory.hotset import Hotset
from chat_proc.memory.indexer import Indexer
from chat_proc.model_check.report import explain_small_context
from chat_proc.model_choice import MODEL_RETRIES, choose_models
from chat_proc.model_gateway.gateway import open_gateways
from chat_proc.models.roles import (
    DECISION,
    EMBEDDING,
    ModelRoles,
    narrow_traits,
)
from chat_proc.opening import KitOpener, build_host_options, build_texts
from chat_proc.sandbox.containers import parse_address
from chat_proc.sandbox.detached.local import LocalRuns
from chat_proc.sandbox.detached.port import DetachedEngine
from chat_proc.sandbox.local_supervisor import load_environment_digest
from chat_proc.sandbox.network import NetworkAccess
from chat_proc.sandbox.opening import ExecutionChoice, OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.receipts import ReceiptSigner, read_signing_key
from chat_proc.sandbox.remote.absent import ELSEWHERE
from chat_proc.sandbox.remote.ecs import FARGATE, EcsEngine, open_ecs_engine, read_ecs_place
from chat_proc.sandbox.remote.port import RemoteEngine
from chat_proc.sandbox.remote.runs import RemoteRuns
from chat_proc.selftest.command import build_presence, pass_gate
from chat_proc.selftest.schedule import BatterySchedule
from chat_proc.settings import (
    ExecutionSettings,
    OperatorConfig,
    WorkerSettings,
    load_config,
)
from chat_proc.skills.projects import ProjectSkills
from chat_proc.timeline.pruning import PrunePolicy
from chat_proc.tools.code.detached_calls import DetachedCalls
from chat_proc.tools.code.program_calls import ProgramDependencies
from chat_proc.tools.memory.memsearch import MemsearchTool
from chat_proc.tools.memory.user_memories import MemoryReadTool, MemorySearchTool, MemoryWriteTool
from chat_proc.tools.offered import OfferedTools, ToolPorts, offer_tools
from chat_proc.tools.rendered import RenderingTool
from chat_proc.tools.web.client import AddressGuard
from chat_proc.tools.web.offered import WebAccess, build_web_tools
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.resolver import NameResolver
from chat_proc.tools.workspace.history import open_projects
from chat_proc.worker.announcing import Announcer
from chat_proc.worker.bundle_operations import OperationRunner
from chat_proc.worker.heartbeat import Heartbeat
from chat_proc.worker.loop import ClaimLoop, Slots, build_claim_bounds
from chat_proc.worker.presence import PresenceTask, TurnDurationAverage
from chat_proc.worker.readiness import ReadyPage, StartReport
from chat_proc.worker.retention import OrphanSweep, RetentionJob
from chat_proc.worker.ringing import Ringer
from chat_proc.worker.run_watch import RunWatch
from chat_proc.worker.runner import RunnerDependencies, TurnRunner
from chat_proc.worker.sweeper import Sweeper
from chat_proc.worker.trimming import StreamTrimmer
from chat_proc.worker.worker import Worker
from everturn.bundles.postgres import PostgresBundles
from everturn.core.cancellation import Stragglers
from everturn.core.clock import now_ms, open_clock
from everturn.core.failpoints import Failpoints
from everturn.core.ids import RandomIds
from everturn.core.lease_timing import LeaseTiming
from everturn.core.logging import Redactor
from everturn.core.loops import LOOPS
from everturn.core.page_server import build_live_page, build_metrics_page, open_page_server
from everturn.core.readiness import CHECK_TIMEOUT_S, Part
from everturn.core.retry import RetryPolicy
from everturn.core.settings import METRICS_LISTEN, split_address
from everturn.core.trace_export import open_tracing
from everturn.core.tracing import Tracing
from everturn.execution.messages import parse_uid_range
from everturn.execution.profiles import Profiles, choose_profiles, load_profiles
from everturn.files.objects import Objects
from everturn.files.opening import open_objects
from everturn.files.postgres import PostgresArtifacts
from everturn.history.postgres import PostgresWorkspaceChanges
from everturn.knowledge.postgres_collections import PostgresCollections
from everturn.knowledge.postgres_store import PostgresKnowledgeStore
from everturn.lifecycle.orphans import SweepParts
from everturn.lifecycle.postgres_erasure import PostgresObjectRows, PostgresRetention
from everturn.mcp_connections.postgres import PostgresConnections
from everturn.memory.embedder import Embedder
from everturn.memory.encoders.opening import EmbedderChoice, open_embedder, resolve_embedder
from everturn.memory.postgres_memories import PostgresUserMemories
from everturn.memory.postgres_search import PostgresMemorySearch, PostgresSnippetIndex
from everturn.memory.user_memories import UserMemories
from everturn.postgres.pool import Database, open_database
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn.skills.postgres import PostgresProjectSkills
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn.turns.postgres_detached import PostgresDetachedRuns
from everturn.turns.postgres_effects import PostgresEffects
from everturn.turns.postgres_leases import PostgresLeases, PostgresSweeps
from everturn.turns.postgres_reading import PostgresConversationReader, PostgresTurns
from everturn.turns.postgres_timelines import PostgresTimelines

_log = structlog.get_logger(__name__)

NO_ENGINES: Mapping[str, EcsEngine] = {}
PROGRAM_GRACE_S = 0.5
"""How long a tool called by a program has to wind up: the run has to end within 2 s of its stop."""
WORKER_ID_BYTES = 8
STRAGGLERS_S = 2.0
"""How long the exiting worker waits for tool calls that ignored their cancellation."""


@dataclass(frozen=True, slots=True)
class Drivers:
    """The drivers of the worker's external dependencies, and the readers of documents, which are processes."""

    database: Database
    redis: RedisDrivers
    objects: Objects
    tracing: Tracing
    embedder: Embedder
    attachments: AttachmentReader
    pages: PageReader


@asynccontextmanager
async def open_worker(
    settings: WorkerSettings,
    *,
    models: ModelRoles | None = None,
    tools: Sequence[Tool] = (),
    bounds: Bounds = BOUNDS,
) -> AsyncGenerator[tuple[Worker, StartReport]]:
    """A worker ready to run; its connections close with it. Raises Invalid if a setting can't be used.

    An application that embeds a worker can pass `models` that replace those of the settings, and more `tools`.
    """
    config = load_config(settings.config, default_bundle=settings.default_bundle)
    models = models or await choose_models(settings, config)
    encoder = choose_encoder(settings, config)
    owner = f"{socket.gethostname()}:{os.getpid()}"
    async with AsyncExitStack() as stack:
        drivers = await stack.enter_async_context(open_drivers(settings, bounds, owner, encoder))
        remote = await open_remote_engines(settings, stack)
        opened = await stack.enter_async_context(open_sandbox(choose_execution(settings, remote)))
        opened = await name_environment(settings, opened)
        if settings.execution_gate == "battery":
            opened = await pass_gate(opened)
        stragglers = Stragglers()
        stack.push_async_callback(stragglers.close, STRAGGLERS_S)
        holder = f"{secrets.token_hex(4)}:{owner}"
        runs = PostgresDetachedRuns(drivers.database, owner=holder, hold_s=bounds.detached_hold_s)
        engines = build_detached_engines(drivers, opened, remote)
        detached = DetachedCalls(runs, engines, retries=RetryPolicy.within_lease(LeaseTiming(bounds.lease_s)))
        bundles, offered = await stack.enter_async_context(
            open_bundles(settings, config, bounds, models, tools, drivers, opened, detached)
        )
        loop = build_loop_dependencies(settings, drivers, stragglers)
        clock = open_clock(settings.clock_steps)
        watch = RunWatch(runs, engines, drivers.redis.doorbells, clock, hold_s=bounds.detached_hold_s)
        worker = build_worker(settings, bounds, owner, drivers, opened, bundles, loop, watch)
        if settings.metrics_listen:
            ready = ReadyPage(build_parts(worker, drivers, opened), open_clock(settings.clock_steps).monotonic)
            pages = {"/metrics": build_metrics_page, "/livez": build_live_page, "/readyz": ready.build}
            server = open_page_server(*split_address(settings.metrics_listen), pages, setting=METRICS_LISTEN)
            await stack.enter_async_context(server)
        model, why = models.model(DECISION), models.choice(DECISION).why
        if warning := explain_small_context(narrow_traits(model, models.fallback), settings.max_output_tokens):
            why = f"{why}; warning: {warning}"
        sandbox_why = f"{opened.why}; {offered.sandbox_why}" if isinstance(opened, OpenedSandbox) else str(opened)
        search = drivers.embedder.name, encoder.why, drivers.embedder.lexical_only
        yield worker, StartReport(model.traits.ledger_name, why, offered.sandbox, sandbox_why, *search)


@asynccontextmanager
async def open_drivers(
    settings: WorkerSettings, bounds: Bounds, owner: str, encoder: EmbedderChoice
) -> AsyncGenerator[Drivers]:
    """Drivers connect when they are first used."""
    async with (
        open_database(
            settings.database_url,
            pool_size=count_connections(settings.worker_slots),
            application_name="chat-proc",
            lease=LeaseTiming(bounds.lease_s),
        ) as database,
        open_redis_drivers(settings.redis_url, name=f"chat-proc:{owner}") as redis,
        open_tracing("everturn-worker", settings.otlp_endpoint) as tracing,
        open_embedder(encoder) as embedder,
        AsyncExitStack() as stack,
    ):
        if embedder.lexical_only:
            _log.warning("Memory search compares words, not meanings", embedder=embedder.name, why=encoder.why)
        else:
            _log.info("Chose the embedder of memory search", embedder=embedder.name, why=encoder.why)
        objects = stack.enter_context(open_objects(settings.objects_url))
        attachments, pages = AttachmentReader(objects), PageReader()
        stack.push_async_callback(attachments.close)
        stack.push_async_callback(pages.close)
        yield Drivers(database, redis, objects, tracing, embedder, attachments, pages)


@asynccontextmanager
async def open_bundles(
    settings: WorkerSettings,
    config: OperatorConfig,
    bounds: Bounds,
    models: ModelRoles,
    tools: Sequence[Tool],
    drivers: Drivers,
    opened: OpenedSandbox | SandboxUnavailable,
    detached: DetachedCalls,
) -> AsyncGenerator[tuple[BundleLibrary[BundleKit], OfferedTools]]:
    """The bundles of this installation, ready to be used, and the tools of the built-in agent."""
    database, objects, embedder = drivers.database, drivers.objects, drivers.embedder
    memories = PostgresUserMemories(database) if settings.user_memory == "on" else None
    conversations, store = PostgresConversationReader(database), partial(PostgresKnowledgeStore, database)
    policy = CallPolicy(settings.address_rules, conversations)
    async with AsyncExitStack() as stack:
        functions = load_tools(config.tools, stack.enter_context(open_tool_threads()))
        described = [RenderingTool(tool, objects) for tool in functions]
        resolver = NameResolver()
        stack.callback(resolver.close)
        opened = connect_programs(opened, resolver)
        web = choose_web_tools(settings, drivers.pages, resolver)
        more = (*build_memory_tools(database, embedder, memories), *web, *described, *tools)
        stragglers = Stragglers(grace_s=PROGRAM_GRACE_S)
        stack.push_async_callback(stragglers.close, STRAGGLERS_S)
        programs = ProgramDependencies(
            PostgresEffects(database),
            policy,
            stragglers,
            Redactor(settings.secrets),
            Failpoints(settings.failpoint),
            LeaseTiming(bounds.lease_s),
        )
        changes = PostgresWorkspaceChanges(database)
        gateways = open_gateways(
            settings.model_environment,
            config.models.endpoints,
            redactor=Redactor(settings.secrets),
            tracing=drivers.tracing,
        )
        ports = ToolPorts(
            objects,
            drivers.attachments,
            PostgresArtifacts(database),
            conversations,
            PostgresTimelines(database),
            CollectionReader(PostgresCollections(database), store, embedder) if settings.collections == "on" else None,
            open_receipts(settings, opened),
            detached,
            await stack.enter_async_context(open_projects(changes, objects, settings.git_rules)),
        )
        sandbox = opened.sandbox.with_tracing(drivers.tracing) if isinstance(opened, OpenedSandbox) else opened
        every: Profiles = opened.profiles if isinstance(opened, OpenedSandbox) else {}
        profiles = {name: each for name, each in every.items() if not each.is_for_agents} or None
        offer = partial(offer_tools, ports, sandbox)
        offered = offer(programs, more=more, profiles=profiles)
        registry = PostgresBundles(database)
        repositories = await stack.enter_async_context(open_repositories(config.bundles, settings.git_rules))
        folders = BundleFolders(
            settings.bundles_dir, config.bundles, config.ai.default_bundle, list_fetched=repositories.list
        )
        opener = KitOpener(
            settings=settings,
            config=config,
            models=models,
            objects=objects,
            resolver=resolver,
            offer=offer,
            tools=more,
            of_operator=frozenset(tool.spec.tool_id for tool in (*described, *tools)),
            policy=policy,
            programs=programs,
            hotset=None if memories is None else Hotset(memories),
            knowledge=KnowledgePorts(store(), embedder, drivers.pages, settings.git_rules),
            connections=PostgresConnections(database),
            folders=folders,
            profiles=profiles,
            texts=build_texts(config),
            hosts=build_host_options(settings),
            gateways=await stack.enter_async_context(gateways),
            coding_profiles={name: each for name, each in every.items() if each.is_for_agents},
        )
        bundles = BundleLibrary(
            registry,
            folders,
            opener.open,
            opener.build_default(offered),
            default_bundle=config.ai.default_bundle,
            list_problems=lambda kit: kit.list_problems(),
            list_operations=lambda kit: kit.operations.listings if kit.operations else (),
        )
        stack.push_async_callback(bundles.close)
        await repositories.wait_fetched()
        await bundles.start()
        yield bundles, offered


async def name_environment(
    settings: WorkerSettings, opened: OpenedSandbox | SandboxUnavailable
) -> OpenedSandbox | SandboxUnavailable:
    """The same. If runs get receipts and this worker starts programs in its own environment, its records of their runs
    name that. Raises SandboxUnavailable."""
    if isinstance(opened, SandboxUnavailable) or not settings.receipt_key.get_secret_value():
        return opened
    if settings.sandbox_python is None or opened.sandbox.posture.launcher in ("containers", ELSEWHERE):
        return opened
    environment = await load_environment_digest(settings.sandbox_python)
    return replace(opened, sandbox=opened.sandbox.with_environment(environment))


def open_receipts(settings: WorkerSettings, opened: OpenedSandbox | SandboxUnavailable) -> ReceiptSigner | None:
    """What signs the receipts of runs; None without a key or a sandbox. Raises BadReceiptKey."""
    if not (pem := settings.receipt_key.get_secret_value()):
        return None
    key = read_signing_key(pem)
    if isinstance(opened, SandboxUnavailable):
        return None
    signer = ReceiptSigner(key, open_clock(settings.clock_steps), Redactor(settings.secrets))
    _log.info("Runs get signed receipts", key_id=signer.key_id)
    return signer


def build_parts(worker: Worker, drivers: Drivers, opened: OpenedSandbox | SandboxUnavailable) -> dict[str, Part]:
    """The parts that readiness checks. Without a sandbox turns still run, but programs don't."""

    async def check_sandbox() -> None:
        if isinstance(opened, SandboxUnavailable):
            raise opened

    note = opened.sandbox.posture.launcher if isinstance(opened, OpenedSandbox) else ""
    return {
        "claims": Part(worker.check_claims),
        "postgres": Part(drivers.database.check),
        "postgres_disk": Part(drivers.database.check_disk, required=False),
        "redis": Part(partial(drivers.redis.doorbells.check, limit_s=CHECK_TIMEOUT_S)),
        "redis memory": Part(drivers.redis.memory.check, required=False),
        "objects": Part(drivers.objects.check, note=drivers.objects.kind),
        "sandbox": Part(check_sandbox, required=False, note=note),
        "loops": Part(LOOPS.check, required=False),
    }


def choose_web_tools(settings: WorkerSettings, reader: PageReader, resolver: NameResolver) -> tuple[Tool, ...]:
    """The web tools that the operator allows."""
    access = WebAccess(
        fetch=settings.web_fetch != "off",
        brave_key=settings.brave_api_key.get_secret_value(),
        tavily_key=settings.tavily_api_key.get_secret_value(),
        in_programs=settings.web_tools_in_programs,
    )
    return build_web_tools(access, settings.address_rules, reader, resolver)


def choose_encoder(settings: WorkerSettings, config: OperatorConfig) -> EmbedderChoice:
    """The encoder of memory search. Raises BadEmbedderSetting."""
    return resolve_embedder(settings.embedder, config.models.roles.get(EMBEDDING), settings.model_environment)


def build_memory_tools(database: Database, embedder: Embedder, memories: UserMemories | None) -> tuple[Tool, ...]:
    """The tools that search earlier conversations; `memories` is None if durable memory is switched off."""
    memsearch = MemsearchTool(PostgresMemorySearch(database), embedder)
    if memories is None:
        return (memsearch,)
    durable = MemorySearchTool(memories, embedder), MemoryReadTool(memories), MemoryWriteTool(memories, embedder)
    return memsearch, *durable


def choose_execution(settings: ExecutionSettings, remote: Mapping[str, EcsEngine] = NO_ENGINES) -> ExecutionChoice:
    """The settings for running programs. Raises BadBrokerAddress, Invalid."""
    profiles = load_profiles(settings.execution_profiles)
    return ExecutionChoice(
        mode=settings.execution_mode,
        broker=parse_address(settings.broker_url, settings.broker_tls_dir) if settings.broker_url else None,
        python=settings.sandbox_python,
        profiles=profiles,
        offered=choose_profiles(profiles, settings.code_profiles),
        elsewhere={name: engine.check_ready for name, engine in remote.items()},
        uids=parse_uid_range(settings.sandbox_uids),
    )


def connect_programs(
    opened: OpenedSandbox | SandboxUnavailable, resolver: NameResolver
) -> OpenedSandbox | SandboxUnavailable:
    """The same, with the networks of its profiles: to public addresses only, as for the web tools, but at any port."""
    if isinstance(opened, SandboxUnavailable):
        return opened
    for name, profile in opened.profiles.items():
        if profile.network:
            _log.info("Programs of an execution profile have a network", profile=name, hosts=list(profile.network))
    guard = AddressGuard(resolver.resolve, ports=range(1, 1 << 16))
    network = NetworkAccess(opened.profiles, guard.find_addresses)
    return replace(opened, sandbox=opened.sandbox.with_network(network))


async def open_remote_engines(settings: ExecutionSettings, stack: AsyncExitStack) -> Mapping[str, EcsEngine]:
    """The engines with machines of their own that are configured, by the name that profiles use. Raises Invalid."""
    place = read_ecs_place(settings)
    return {} if place is None else {FARGATE: await stack.enter_async_context(open_ecs_engine(place))}


def build_detached_engines(
    drivers: Drivers, opened: OpenedSandbox | SandboxUnavailable, remote: Mapping[str, RemoteEngine]
) -> Mapping[str, DetachedEngine]:
    """What keeps runs whose turns wait, by name. A worker without a sandbox still finds the runs that others lost."""
    profiles: Profiles = opened.profiles if isinstance(opened, OpenedSandbox) else {}
    after_s = {name: profile.detach_after_s for name, profile in profiles.items() if profile.detach_after_s is not None}
    sandbox = opened.sandbox.with_tracing(drivers.tracing) if isinstance(opened, OpenedSandbox) else opened
    held = LocalRuns(sandbox, drivers.objects, after_s)
    limits = {name: profile.limits for name, profile in profiles.items()}
    return {held.name: held, **{name: RemoteRuns(name, engine, limits) for name, engine in remote.items()}}


def build_loop_dependencies(settings: WorkerSettings, drivers: Drivers, stragglers: Stragglers) -> LoopDependencies:
    """What the loops of all turns share; `stragglers` owns the calls that ignore their cancellation."""
    ids = RandomIds(partial(now_ms, open_clock(settings.clock_steps)))
    return LoopDependencies(
        objects=drivers.objects,
        attachments=drivers.attachments,
        stragglers=stragglers,
        next_call_id=ids.call,
        next_turn_id=ids.turn,
        failpoints=Failpoints(settings.failpoint),
        redactor=Redactor(settings.secrets),
        model_retries=MODEL_RETRIES,
        tracing=drivers.tracing,
    )


def build_worker(
    settings: WorkerSettings,
    bounds: Bounds,
    owner: str,
    drivers: Drivers,
    opened: OpenedSandbox | SandboxUnavailable,
    bundles: BundleLibrary[BundleKit],
    loop: LoopDependencies,
    watch: RunWatch,
) -> Worker:
    """The worker with its drivers; `owner` identifies it in its leases."""
    database, redis = drivers.database, drivers.redis
    clock, failpoints = open_clock(settings.clock_steps), loop.failpoints
    leases = PostgresLeases(database, owner=owner, ttl_s=bounds.lease_s)
    retries = RetryPolicy.within_lease(LeaseTiming(bounds.lease_s))
    timelines, sweeps = PostgresTimelines(database), PostgresSweeps(database)
    ringer = Ringer(redis.doorbells, sweeps)
    announcer = Announcer(
        leases=leases,
        timelines=timelines,
        turns=PostgresTurns(database),
        writer=redis.event_writer,
        ringer=ringer,
        clock=clock,
        retries=retries,
        memory=redis.memory,
    )
    parts = RunnerDependencies(
        leases=leases,
        timelines=timelines,
        writer=redis.event_writer,
        artifacts=PostgresArtifacts(database),
        approvals=PostgresApprovals(database),
        kits=bundles,
        loop=loop,
        announcer=announcer,
        ringer=ringer,
        clock=clock,
        retries=retries,
        pruning=PrunePolicy(ttl_s=settings.cache_ttl_s),
        project_skills=ProjectSkills(PostgresProjectSkills(database)),
    )
    slots = Slots(settings.worker_slots, extra=settings.worker_slots)
    own = build_presence(
        secrets.token_hex(WORKER_ID_BYTES), opened, settings.worker_slots, extra_slots=settings.worker_slots
    )
    turn_average = TurnDurationAverage()
    presence = PresenceTask(redis.presences, replace(own, user_running_max=settings.user_running_max), turn_average)
    indexer = Indexer(
        index=PostgresSnippetIndex(database),
        embedder=drivers.embedder,
        attachments=drivers.attachments,
        failpoints=failpoints,
        is_busy=lambda: slots.running > 0,
    )
    collections = None
    if settings.collections == "on":
        index, open_store = PostgresCollections(database), partial(PostgresKnowledgeStore, database)
        collections = CollectionIndexer(index, open_store, drivers.embedder, drivers.pages, drivers.objects)
    heartbeat = Heartbeat(leases, clock, lease_s=bounds.lease_s)
    claim_loop = ClaimLoop(
        leases=leases,
        claims=leases,
        clock=clock,
        doorbells=redis.doorbells,
        ringer=ringer,
        bells=redis.inbox_bells,
        heartbeat=heartbeat,
        build_runner=partial(TurnRunner, parts),
        slots=slots,
        bounds=lambda: build_claim_bounds(settings.user_running_max, *presence.slots),
        turn_average=turn_average,
        failpoints=failpoints,
        ring_indexer=indexer.ring,
    )
    sweeper = Sweeper(sweeps, redis.doorbells, clock, lease_s=bounds.lease_s)
    battery = build_battery(settings, opened, slots, presence)
    tasks = claim_loop, heartbeat, sweeper, indexer, build_retention(settings, bounds, drivers)
    trimmer = StreamTrimmer(redis.memory)
    return Worker(
        *tasks,
        trimmer=trimmer,
        presence=presence,
        bundles=bundles,
        operations=OperationRunner(redis.operations, bundles),
        watch=watch,
        collections=collections,
        run_battery=battery.run if battery else None,
        deadline_s=settings.drain_timeout_s,
    )


def build_battery(
    settings: WorkerSettings, opened: OpenedSandbox | SandboxUnavailable, slots: Slots, presence: PresenceTask
) -> BatterySchedule | None:
    """What repeats the escape battery; None without an interval or a sandbox of this worker."""
    if not settings.battery_interval_s or isinstance(opened, SandboxUnavailable):
        return None
    if opened.sandbox.posture.launcher == ELSEWHERE:
        return None
    return BatterySchedule(
        opened.sandbox,
        interval_s=settings.battery_interval_s,
        wait_idle=slots.wait_idle,
        note=presence.note_battery,
    )


def build_retention(settings: WorkerSettings, bounds: Bounds, drivers: Drivers) -> RetentionJob:
    database, days = drivers.database, settings.retention_days
    retention, artifacts = PostgresRetention(database), PostgresArtifacts(database)
    parts = SweepParts(drivers.objects, PostgresObjectRows(database).load_orphans, open_clock(settings.clock_steps))
    orphans = OrphanSweep(parts, after_s=bounds.orphans_after_s) if settings.orphans == "delete" else None
    return RetentionJob(retention, drivers.redis.event_writer, artifacts, drivers.objects, days=days, orphans=orphans)

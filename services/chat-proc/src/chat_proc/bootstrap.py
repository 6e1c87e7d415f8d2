"""Assembles a worker: the only module that chooses drivers, models, tools and sandbox, and logs the reasons."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import structlog

from chat_proc.agent.authored.port import Authored
from chat_proc.agent.kit import BundleKit, LoopDependencies, OperatorTexts, TurnKit, TurnLimits
from chat_proc.agent.prompt.system import build_codec, load_topic
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bounds import BOUNDS, Bounds, count_connections
from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.folders import BundleFolders
from chat_proc.bundles.host.environments import Environments
from chat_proc.bundles.host.host import HostOptions
from chat_proc.bundles.manifest import Manifest, TurnBudget, merge_react
from chat_proc.bundles.policy import BundlePolicy
from chat_proc.bundles.versions import BundleLibrary
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.described import load_tools, open_tool_threads
from chat_proc.catalog.mcp_servers import TOOLS_DESCRIPTOR, choose_servers, read_tool_specs
from chat_proc.catalog.tool import Tool, ToolSpec
from chat_proc.channels.actions import FanoutRules
from chat_proc.channels.codec import DAG_ROUNDS, DEFAULT_ROUNDS, choose_codec
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.knowledge.spaces import KnowledgePorts, open_knowledge
from chat_proc.memory.hotset import Hotset
from chat_proc.memory.indexer import Indexer
from chat_proc.model_check.report import explain_small_context
from chat_proc.models.cards import ModelCards
from chat_proc.models.endpoints import Endpoint
from chat_proc.models.providers import (
    ask_lists,
    build_provider_model,
    choose_roles,
    read_choice,
    try_find_first_token_timeout_s,
)
from chat_proc.models.retry import ModelRetryLimits, RetryingModel
from chat_proc.models.roles import (
    DECISION,
    EMBEDDING,
    OFFLINE,
    SCRIPTED,
    SELECTION,
    SUMMARY,
    SYNTHESIS,
    TITLE,
    ModelChoice,
    ModelRoles,
    narrow_traits,
)
from chat_proc.sandbox.containers import parse_address
from chat_proc.sandbox.opening import ExecutionChoice, OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.selftest.command import build_presence, pass_gate
from chat_proc.settings import (
    MIN_CONTEXT_TOKENS,
    ExecutionSettings,
    ModelSettings,
    OperatorConfig,
    WorkerSettings,
    load_config,
)
from chat_proc.skills.model import NO_SKILLS, Skills
from chat_proc.skills.reader import PLATFORM_NAMESPACE, SkillSpec, load_platform_skills, read_skills
from chat_proc.timeline.compaction.cut import ContextLimits, build_context_limits
from chat_proc.timeline.pruning import PrunePolicy
from chat_proc.tools.code.program_calls import ProgramDependencies
from chat_proc.tools.hosted import check_builtin_tools, open_bundle_code
from chat_proc.tools.memory.memsearch import MemsearchTool
from chat_proc.tools.memory.user_memories import USER_MEMORY_TOOLS, MemoryReadTool, MemorySearchTool, MemoryWriteTool
from chat_proc.tools.offered import BUILTIN_TOOLS, OfferedTools, ToolPorts, offer_tools
from chat_proc.tools.rendered import RenderingTool
from chat_proc.tools.web.offered import WebAccess, build_web_tools
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.resolver import NameResolver
from chat_proc.tools.workflow_knowledge import READ_TOOL, build_knowledge_tools
from chat_proc.worker.announcing import Announcer
from chat_proc.worker.heartbeat import Heartbeat
from chat_proc.worker.loop import ClaimLoop, Slots, build_claim_bounds
from chat_proc.worker.presence import PresenceTask, TurnDurationAverage
from chat_proc.worker.readiness import ReadyPage, StartReport
from chat_proc.worker.retention import OrphanSweep, RetentionJob
from chat_proc.worker.ringing import Ringer
from chat_proc.worker.runner import RunnerDependencies, TurnRunner
from chat_proc.worker.sweeper import Sweeper
from chat_proc.worker.trimming import StreamTrimmer
from chat_proc.worker.worker import Worker
from everturn.bundles.postgres import PostgresBundles
from everturn.bundles.registry import DEFAULT_BUNDLE
from everturn.core.cancellation import Stragglers
from everturn.core.clock import now_ms, open_clock
from everturn.core.errors import Invalid
from everturn.core.failpoints import Failpoints
from everturn.core.ids import RandomIds
from everturn.core.lease_timing import LeaseTiming
from everturn.core.logging import Redactor, find_url_secrets
from everturn.core.loops import LOOPS
from everturn.core.page_server import build_live_page, build_metrics_page, open_page_server
from everturn.core.readiness import CHECK_TIMEOUT_S, Part
from everturn.core.retry import RetryPolicy
from everturn.core.settings import METRICS_LISTEN, load_bundle_secrets, split_address
from everturn.core.trace_export import open_tracing
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.execution.messages import RunLimits, parse_uid_range
from everturn.execution.profiles import choose_profiles, load_profiles
from everturn.files.objects import Objects
from everturn.files.opening import open_objects
from everturn.files.postgres import PostgresArtifacts
from everturn.knowledge.postgres_store import PostgresKnowledgeStore
from everturn.lifecycle.orphans import SweepParts
from everturn.lifecycle.postgres_erasure import PostgresObjectRows, PostgresRetention
from everturn.memory.embedder import Embedder
from everturn.memory.encoders.opening import EmbedderChoice, open_embedder, resolve_embedder
from everturn.memory.postgres_memories import PostgresUserMemories
from everturn.memory.postgres_search import PostgresMemorySearch, PostgresSnippetIndex
from everturn.memory.user_memories import UserMemories
from everturn.models.port import LanguageModel, ModelTraits
from everturn.postgres.pool import Database, open_database
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn.turns.postgres_effects import PostgresEffects
from everturn.turns.postgres_leases import PostgresLeases, PostgresSweeps
from everturn.turns.postgres_reading import PostgresConversationReader, PostgresTurns
from everturn.turns.postgres_timelines import PostgresTimelines

_log = structlog.get_logger(__name__)

PROGRAM_GRACE_S = 0.5
"""How long a tool called by a program has to wind up: the run has to end within 2 s of its stop."""
WORKER_ID_BYTES = 8
STRAGGLERS_S = 2.0
"""How long the exiting worker waits for tool calls that ignored their cancellation."""
MODEL_RETRIES = ModelRetryLimits()
"""For each call of a model, and for the replies of a round."""
CHECK_RETRIES = ModelRetryLimits(max_attempts=3, max_timeouts=1, max_likely_permanent=1, window_s=20.0, budget_s=40.0)
"""While an operator waits for the check of a model: enough for a rate limit, but a failure shows soon."""


class NothingToCheck(Invalid):
    """There is nothing to check."""


@dataclass(frozen=True, slots=True)
class Drivers:
    """The drivers of the worker's external dependencies."""

    database: Database
    redis: RedisDrivers
    objects: Objects
    embedder: Embedder
    presence: PresenceTask
    turn_average: TurnDurationAverage
    tracing: Tracing


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
    config = load_config(settings.config)
    models = models or await choose_models(settings, config)
    owner = f"{socket.gethostname()}:{os.getpid()}"
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            open_database(
                settings.database_url,
                pool_size=count_connections(settings.worker_slots),
                application_name="chat-proc",
                lease=LeaseTiming(bounds.lease_s),
            )
        )
        redis = await stack.enter_async_context(open_redis_drivers(settings.redis_url, name=f"chat-proc:{owner}"))
        objects = stack.enter_context(open_objects(settings.objects_url))
        tracing = await stack.enter_async_context(open_tracing("everturn-worker", settings.otlp_endpoint))
        opened = await stack.enter_async_context(open_sandbox(choose_execution(settings)))
        if settings.execution_gate == "battery":
            opened = await pass_gate(opened)
        encoder = choose_encoder(settings, config)
        embedder = await stack.enter_async_context(open_embedder(encoder))
        if embedder.lexical_only:
            _log.warning("Memory search compares words, not meanings", embedder=embedder.name, why=encoder.why)
        else:
            _log.info("Chose the embedder of memory search", embedder=embedder.name, why=encoder.why)
        memories = PostgresUserMemories(database) if settings.user_memory == "on" else None
        functions = load_tools(config.tools, stack.enter_context(open_tool_threads()))
        described = [RenderingTool(tool, objects) for tool in functions]
        reader = PageReader()
        stack.push_async_callback(reader.close)
        attachments = AttachmentReader(objects)
        stack.push_async_callback(attachments.close)
        resolver = NameResolver()
        stack.callback(resolver.close)
        web = choose_web_tools(settings, reader, resolver)
        more = (*build_memory_tools(database, embedder, memories), *web, *described, *tools)
        sandbox = opened.sandbox.with_tracing(tracing) if isinstance(opened, OpenedSandbox) else opened
        stragglers = Stragglers()
        stack.push_async_callback(stragglers.close, STRAGGLERS_S)
        program_stragglers = Stragglers(grace_s=PROGRAM_GRACE_S)
        stack.push_async_callback(program_stragglers.close, STRAGGLERS_S)
        policy = CallPolicy(settings.address_rules, PostgresConversationReader(database))
        programs = build_program_dependencies(settings, bounds, database, policy, program_stragglers)
        profiles = opened.profiles if isinstance(opened, OpenedSandbox) else None
        ports = build_tool_ports(database, objects, attachments)
        offer = partial(offer_tools, ports, sandbox, profiles=profiles)
        offered = offer(programs, more=more)
        hotset = None if memories is None else Hotset(memories)
        of_operator = frozenset(tool.spec.tool_id for tool in (*described, *tools))
        texts, hosts = build_texts(config), build_host_options(settings)

        @asynccontextmanager
        async def open_kit(bundle: Bundle) -> AsyncGenerator[BundleKit]:
            manifest = bundle.manifest
            check_builtin_tools(manifest.builtin_tools, of_operator)
            served = await choose_models_of(manifest, settings, config, models)
            skills = await asyncio.to_thread(read_bundle_skills, bundle, has_programs=isinstance(opened, OpenedSandbox))
            own_secrets = await asyncio.to_thread(load_bundle_secrets, settings.secrets_dir, bundle.id)
            own_policy = policy.with_rules(BundlePolicy(manifest.policy, manifest.builtin_tools.ask))
            own_programs = replace(programs, policy=own_policy)
            folder = folders.find_folder(bundle.id)
            async with (
                open_bundle_code(bundle, own_secrets, hosts, objects, BUILTIN_TOOLS | of_operator) as hosted,
                open_knowledge(bundle.id, manifest.knowledge, folder, knowledge) as known,
            ):

                def build(mcp: Sequence[Tool]) -> TurnKit:
                    """The kit with these tools of MCP servers."""
                    own = (*hosted.tools, *mcp)
                    offered = offer(
                        own_programs,
                        more=(*more, *own),
                        off=manifest.builtin_tools.off,
                        skills=skills,
                        knowledge=known,
                    )
                    kit = build_kit(
                        settings,
                        config,
                        served,
                        manifest,
                        own_policy,
                        offered=offered,
                        hotset=hotset,
                        skills=skills,
                        selectable=of_operator.union(tool.spec.tool_id for tool in own),
                    )
                    if (workflow := hosted.workflow) is None:
                        return kit
                    tools_of_workflow = build_knowledge_tools(workflow, offered.registry.find(READ_TOOL))
                    return replace(kit, authored=Authored(workflow, tools_of_workflow))

                kit = BundleKit(build(()), texts, bundle_id=bundle.id, digest=bundle.digest)

                async def offer_mcp(found: Sequence[Tool]) -> None:
                    kit.replace(await asyncio.to_thread(build, found))

                opening = open_mcp_servers(bundle, settings, config, objects, resolver, hosts, own_secrets, offer_mcp)
                async with opening as list_problems:
                    kit.list_problems = list_problems
                    yield kit

        folders = BundleFolders(settings.bundles_dir, config.bundles, config.ai.default_bundle)
        knowledge = KnowledgePorts(PostgresKnowledgeStore(database), embedder, reader, settings.git_rules)
        base = Manifest(id=DEFAULT_BUNDLE)
        bundles = BundleLibrary(
            PostgresBundles(database),
            folders,
            open_kit,
            BundleKit(build_kit(settings, config, models, base, policy, offered=offered, hotset=hotset), texts),
            default_bundle=config.ai.default_bundle,
            list_problems=lambda kit: kit.list_problems(),
        )
        stack.push_async_callback(bundles.close)
        await bundles.start()
        loop = build_loop_dependencies(settings, objects, attachments, stragglers, tracing)
        turn_average = TurnDurationAverage()
        own = build_presence(
            secrets.token_hex(WORKER_ID_BYTES), opened, settings.worker_slots, extra_slots=settings.worker_slots
        )
        own = replace(own, user_running_max=settings.user_running_max)
        presence = PresenceTask(redis.presences, own, turn_average)
        drivers = Drivers(database, redis, objects, embedder, presence, turn_average, tracing)
        worker = build_worker(settings, bounds, owner, drivers, bundles, loop)
        name, why = models.model(DECISION).traits.ledger_name, models.choice(DECISION).why
        if warning := explain_small_context(
            narrow_traits(models.model(DECISION), models.fallback), settings.max_output_tokens
        ):
            why = f"{why}; warning: {warning}"
        search = embedder.name, encoder.why, embedder.lexical_only
        sandbox_why = f"{opened.why}; {offered.sandbox_why}" if isinstance(opened, OpenedSandbox) else str(opened)
        if settings.metrics_listen:
            ready = ReadyPage(build_parts(worker, drivers, opened), open_clock(settings.clock_steps).monotonic)
            pages = {"/metrics": build_metrics_page, "/livez": build_live_page, "/readyz": ready.build}
            server = open_page_server(*split_address(settings.metrics_listen), pages, setting=METRICS_LISTEN)
            await stack.enter_async_context(server)
        yield worker, StartReport(name, why, offered.sandbox, sandbox_why, *search)


@asynccontextmanager
async def open_mcp_servers(
    bundle: Bundle,
    settings: WorkerSettings,
    config: OperatorConfig,
    objects: Objects,
    resolver: NameResolver,
    hosts: HostOptions,
    secrets: Mapping[str, str],
    on_change: Callable[[Sequence[Tool]], Awaitable[None]],
) -> AsyncGenerator[Callable[[], Sequence[str]]]:
    """The MCP servers of a bundle while it is open. Yields what lists their problems. Raises Invalid."""
    chosen = choose_servers(
        bundle.manifest.mcp,
        config.mcp,
        read_tool_specs(bundle.files.get(TOOLS_DESCRIPTOR, b"")),
        bundle.id,
        is_default=bundle.id == config.ai.default_bundle,
    )
    if not chosen:
        yield tuple
        return
    # Imported here, because the SDK takes 0.6 s and 33 MB.
    from chat_proc.mcp.http import HostRules
    from chat_proc.mcp.stdio import ChildOptions
    from chat_proc.mcp.tools import McpDependencies, open_servers

    children = ChildOptions(settings.search_path, hosts.environments, hosts.uids, hosts.variables)
    dependencies = McpDependencies(objects, resolver.resolve, HostRules(settings.mcp_hosts), children)
    # By the names under which descriptions refer to them.
    found = {**settings.mcp_secrets, **{f"b:{name}": value for name, value in secrets.items()}}
    opening = open_servers(chosen, dependencies, find_secret=found.get, on_change=on_change, files=bundle.files)
    async with opening as servers:
        yield servers.list_problems


def build_parts(worker: Worker, drivers: Drivers, opened: OpenedSandbox | SandboxUnavailable) -> dict[str, Part]:
    """The parts that readiness checks. Without a sandbox turns still run, but programs don't."""

    async def check_sandbox() -> None:
        if isinstance(opened, SandboxUnavailable):
            raise opened

    note = opened.sandbox.posture.launcher if isinstance(opened, OpenedSandbox) else ""
    return {
        "claims": Part(worker.check_claims),
        "postgres": Part(drivers.database.check),
        "postgres disk": Part(drivers.database.check_disk, required=False),
        "redis": Part(partial(drivers.redis.doorbells.check, limit_s=CHECK_TIMEOUT_S)),
        "redis memory": Part(drivers.redis.memory.check, required=False),
        "objects": Part(drivers.objects.check, note=drivers.objects.kind),
        "sandbox": Part(check_sandbox, required=False, note=note),
        "loops": Part(LOOPS.check, required=False),
    }


def build_program_dependencies(
    settings: WorkerSettings, bounds: Bounds, database: Database, policy: CallPolicy, stragglers: Stragglers
) -> ProgramDependencies:
    """The dependencies for answering calls of programs."""
    redactor, failpoints = Redactor(settings.secrets), Failpoints(settings.failpoint)
    return ProgramDependencies(
        PostgresEffects(database), policy, stragglers, redactor, failpoints, LeaseTiming(bounds.lease_s)
    )


def choose_web_tools(settings: WorkerSettings, reader: PageReader, resolver: NameResolver) -> tuple[Tool, ...]:
    """The web tools that the operator allows."""
    access = WebAccess(
        fetch=settings.web_fetch != "off",
        brave_key=settings.brave_api_key.get_secret_value(),
        tavily_key=settings.tavily_api_key.get_secret_value(),
        in_programs=settings.web_tools_in_programs,
    )
    return build_web_tools(access, settings.address_rules, reader, resolver)


def build_tool_ports(database: Database, objects: Objects, attachments: AttachmentReader) -> ToolPorts:
    """The ports through which the tools read conversations and files."""
    artifacts, timelines = PostgresArtifacts(database), PostgresTimelines(database)
    return ToolPorts(objects, attachments, artifacts, PostgresConversationReader(database), timelines)


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


def choose_execution(settings: ExecutionSettings) -> ExecutionChoice:
    """The settings for running programs. Raises BadBrokerAddress, Invalid."""
    profiles = load_profiles(settings.execution_profiles)
    return ExecutionChoice(
        mode=settings.execution_mode,
        broker=parse_address(settings.broker_url, settings.broker_tls_dir) if settings.broker_url else None,
        python=settings.sandbox_python,
        profiles=profiles,
        offered=choose_profiles(profiles, settings.code_profiles),
        uids=parse_uid_range(settings.sandbox_uids),
    )


async def choose_models(settings: ModelSettings, config: OperatorConfig) -> ModelRoles:
    """The models by role; each is built on first use, but servers are asked now for what no card says.

    Raises BadModelSetting, BadConfig.
    """
    environment, endpoints = settings.model_environment, config.models.endpoints
    roles = dict[str, str](config.models.roles.items())
    choices = choose_roles(environment, roles, settings.fallback_model, endpoints)
    cards = await ask_cards(choices.used, config, environment)
    build = partial(build_model, cards=cards, environment=environment, endpoints=endpoints)
    return ModelRoles(choices, build, cards.listed)


async def choose_checked_model(
    settings: ModelSettings, config: OperatorConfig, name: str
) -> tuple[ModelChoice, LanguageModel]:
    """The model to check, named as in EVERTURN_MODEL; without a name that of the role `decision`. No other role needs
    its model for this. Raises BadModelSetting, BadConfig, NothingToCheck."""
    environment, endpoints = settings.model_environment, config.models.endpoints
    if name:
        choice = read_choice("The argument NAME", name, environment, endpoints)
    else:
        roles = {role: model for role, model in config.models.roles.items() if role == DECISION}
        choice = choose_roles(environment, dict[str, str](roles), "", endpoints).find(DECISION)
    if choice.provider in (OFFLINE, SCRIPTED):
        what = "the built-in demo" if choice.provider == OFFLINE else "a script"
        why = "" if name else f" ({choice.why})"
        raise NothingToCheck(
            f"{choice.full_name} is {what}, which can't be checked{why}. Name a model, such as openai:<name>, or set "
            "EVERTURN_MODEL."
        )
    cards = await ask_cards((choice,), config, environment)
    return choice, build_model(choice, cards, environment, endpoints, CHECK_RETRIES)


async def ask_cards(
    choices: Sequence[ModelChoice], config: OperatorConfig, environment: Mapping[str, str]
) -> ModelCards:
    """The cards of the operator, with what servers state about the chosen models. Raises BadConfig."""
    cards = ModelCards(config.models.cards, config.models.unpriced)
    return replace(cards, listed=await ask_lists(choices, cards, environment, config.models.endpoints))


def build_model(
    choice: ModelChoice,
    cards: ModelCards,
    environment: Mapping[str, str],
    endpoints: Mapping[str, Endpoint],
    retries: ModelRetryLimits = MODEL_RETRIES,
) -> LanguageModel:
    """The chosen model with retries. Raises BadConfig if the configuration of the model can't be used."""
    if choice.provider == OFFLINE:
        from chat_proc.demo.model import build_model as build_demo

        model = build_demo(choice.name)
    elif choice.provider == SCRIPTED:
        from everturn_testing.models.scripted_file import build_model as build_scripted

        model = build_scripted(choice.name)
    else:
        model = build_provider_model(choice, cards, environment, endpoints)
        if limit_s := try_find_first_token_timeout_s(choice, environment, endpoints):
            retries = replace(retries, first_token_timeout_s=limit_s)
    return RetryingModel(model, limits=retries)


def build_kit(
    settings: WorkerSettings,
    config: OperatorConfig,
    models: ModelRoles,
    manifest: Manifest,
    policy: CallPolicy,
    *,
    offered: OfferedTools,
    hotset: Hotset | None,
    skills: Skills = NO_SKILLS,
    selectable: frozenset[str] = frozenset(),
) -> TurnKit:
    """The kit of a bundle's turns, which may choose among the `selectable` tools. Raises BadConfig if a model's
    configuration can't be used."""
    model, fallback = models.model(DECISION), models.fallback
    react, catalog = merge_react(config.ai.react, manifest.agent), offered.registry
    if manifest.user_memory == "off":
        catalog, hotset = catalog.without(USER_MEMORY_TOOLS), None
    decisions = build_decision_limits(settings, catalog.specs)
    workflow = react.workflow or "loop"
    threshold = react.tool_selection_threshold

    def build_for(served: LanguageModel) -> TurnKit:
        traits = narrow_traits(served, fallback)
        reply_tokens = traits.limit_reply(settings.max_output_tokens)
        codec = choose_codec(react.codec or settings.codec, traits)
        usual = DAG_ROUNDS if workflow == "dag" else DEFAULT_ROUNDS[codec]
        kit = TurnKit(
            model=served,
            fallback=fallback,
            summary_model=models.try_model(SUMMARY),
            title_model=models.try_model(TITLE),
            title_prompt=load_topic("title"),
            catalog=catalog,
            policy=policy,
            codec=build_codec(codec, catalog.specs, decisions.max_actions, skills=skills),
            native=build_codec("native", catalog.specs, skills=skills),
            selectable=selectable.intersection(spec.tool_id for spec in catalog.specs),
            selection_model=models.try_model(SELECTION),
            synthesis_model=models.try_model(SYNTHESIS),
            code=offered.posture,
            run=RunLimits() if decisions.code_tools else None,
            history=offered.history,
            skills=skills,
            hotset=hotset,
            context=build_context(settings, traits, reply_tokens),
            decisions=decisions,
            workflow=workflow,
            limits=build_turn_limits(
                settings, manifest.limits, react.max_iterations or settings.max_iterations or usual, reply_tokens
            ),
            synthesis=react.synthesis or "auto",
            approval_timeout_s=settings.approval_timeout_s,
        )
        kit = kit if threshold is None else replace(kit, selection_threshold=threshold)
        return kit.instruct(manifest.instructions)

    return replace(build_for(model), hinted={role: build_for(models.model(role)) for role in models.hints})


def read_bundle_skills(bundle: Bundle, *, has_programs: bool) -> Skills:
    """The skills of a bundle. The built-in agent has those of the platform, which need programs, unless its properties
    say otherwise. Raises Invalid."""
    specs = bundle.manifest.skills
    if specs is None and not bundle.files and bundle.id == DEFAULT_BUNDLE and has_programs:
        specs = (SkillSpec(namespace=PLATFORM_NAMESPACE),)
    skills = read_skills(bundle.files, specs, load_platform_skills())
    if skills:
        _log.info("Read the skills of a bundle", bundle_id=bundle.id, skills=[skill.id for skill in skills])
    return skills


def build_host_options(settings: WorkerSettings) -> HostOptions:
    """How the processes of bundles run here."""
    uids = parse_uid_range(settings.bundle_uids)
    variables = settings.pip_variables
    hidden = Redactor((*settings.secrets, *find_url_secrets(variables.values())))
    return HostOptions(
        Environments(settings.bundle_environments, pip_settings=variables, redactor=hidden),
        memory_max_mib=settings.bundle_memory_max_mib,
        uids=range(uids.first, uids.last + 1),
        variables=settings.bundle_variables,
    )


def build_texts(config: OperatorConfig) -> OperatorTexts:
    """What the operator adds to the prompts."""
    return OperatorTexts(
        config.ai.instructions,
        {name: tenant.instructions for name, tenant in config.tenants.items()},
        {
            (tenant, project): about.instructions
            for tenant, its in config.tenants.items()
            for project, about in its.projects.items()
        },
    )


async def choose_models_of(
    manifest: Manifest, settings: ModelSettings, config: OperatorConfig, usual: ModelRoles
) -> ModelRoles:
    """The models by role for a bundle: the `usual` ones, unless it names others. Raises BadModelSetting, BadConfig."""
    if not manifest.models:
        return usual
    roles = {**config.models.roles, **manifest.models}
    named = config.models.model_copy(update={"roles": roles})
    return await choose_models(settings, config.model_copy(update={"models": named}))


def build_turn_limits(settings: WorkerSettings, budget: TurnBudget, rounds: int, reply_tokens: int) -> TurnLimits:
    """The limits of a turn with so many rounds: the lower of the operator's and the bundle's."""
    return TurnLimits(
        rounds=rounds,
        wall_time_s=min(settings.turn_wall_time_s, budget.wall_time_s or settings.turn_wall_time_s),
        tokens=min(settings.turn_tokens, budget.tokens or settings.turn_tokens),
        cost_usd=min(settings.turn_cost_usd, budget.cost_usd or settings.turn_cost_usd),
        max_output_tokens=min(reply_tokens, budget.output_tokens or reply_tokens),
    )


def build_decision_limits(settings: WorkerSettings, tools: Sequence[ToolSpec]) -> DecisionLimits:
    """What a reply may contain, given the agent's version and the available tools."""
    code_tools = frozenset(spec.tool_id for spec in tools if spec.takes_code)
    fanout = FanoutRules({spec.tool_id: spec.strategy for spec in tools}, code_tools)
    return DecisionLimits(
        code_tools=code_tools,
        one_thinking=settings.agent_version == "v2",
        fanout=fanout if settings.multi_action == "safe_fanout" else None,
    )


def build_context(settings: WorkerSettings, traits: ModelTraits, reply_tokens: int) -> ContextLimits:
    """The bounds of a request's length for the deciding models."""
    limits = build_context_limits(
        settings.context_max_tokens, context_tokens=traits.context_tokens, max_output_tokens=reply_tokens
    )
    if limits.max_tokens < MIN_CONTEXT_TOKENS:
        # A setting this small is rejected; a model this small may be all the operator has, so it is only logged.
        _log.warning(
            "The model has a small context",
            model=traits.ledger_name,
            tokens=limits.max_tokens,
            minimum_tokens=MIN_CONTEXT_TOKENS,
        )
    return limits


def build_loop_dependencies(
    settings: WorkerSettings,
    objects: Objects,
    attachments: AttachmentReader,
    stragglers: Stragglers,
    tracing: Tracing = NO_TRACING,
) -> LoopDependencies:
    """What the loops of all turns share; `stragglers` owns the calls that ignore their cancellation."""
    ids = RandomIds(partial(now_ms, open_clock(settings.clock_steps)))
    return LoopDependencies(
        objects=objects,
        attachments=attachments,
        stragglers=stragglers,
        next_call_id=ids.call,
        next_turn_id=ids.turn,
        failpoints=Failpoints(settings.failpoint),
        redactor=Redactor(settings.secrets),
        model_retries=MODEL_RETRIES,
        tracing=tracing,
    )


def build_worker(
    settings: WorkerSettings,
    bounds: Bounds,
    owner: str,
    drivers: Drivers,
    bundles: BundleLibrary[BundleKit],
    loop: LoopDependencies,
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
    )
    slots = Slots(settings.worker_slots, extra=settings.worker_slots)
    indexer = build_indexer(drivers, loop.attachments, failpoints, is_busy=lambda: slots.running > 0)
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
        bounds=lambda: build_claim_bounds(settings.user_running_max, *drivers.presence.slots),
        turn_average=drivers.turn_average,
        failpoints=failpoints,
        ring_indexer=indexer.ring,
    )
    sweeper = Sweeper(sweeps, redis.doorbells, clock, lease_s=bounds.lease_s)
    tasks = claim_loop, heartbeat, sweeper, indexer, build_retention(settings, bounds, drivers)
    trimmer = StreamTrimmer(redis.memory)
    return Worker(
        *tasks, trimmer=trimmer, presence=drivers.presence, bundles=bundles, deadline_s=settings.drain_timeout_s
    )


def build_indexer(
    drivers: Drivers, attachments: AttachmentReader, failpoints: Failpoints, *, is_busy: Callable[[], bool]
) -> Indexer:
    """The indexer that makes ended turns searchable."""
    return Indexer(
        index=PostgresSnippetIndex(drivers.database),
        embedder=drivers.embedder,
        attachments=attachments,
        failpoints=failpoints,
        is_busy=is_busy,
    )


def build_retention(settings: WorkerSettings, bounds: Bounds, drivers: Drivers) -> RetentionJob:
    database, days = drivers.database, settings.retention_days
    retention, artifacts = PostgresRetention(database), PostgresArtifacts(database)
    parts = SweepParts(drivers.objects, PostgresObjectRows(database).load_orphans, open_clock(settings.clock_steps))
    orphans = OrphanSweep(parts, after_s=bounds.orphans_after_s) if settings.orphans == "delete" else None
    return RetentionJob(retention, drivers.redis.event_writer, artifacts, drivers.objects, days=days, orphans=orphans)

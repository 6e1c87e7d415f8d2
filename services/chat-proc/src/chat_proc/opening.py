"""Opens what the turns of a bundle use: its models, tools, skills, knowledge and MCP servers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import structlog

from chat_proc.agent.authored.port import Authored
from chat_proc.agent.kit import BundleKit, OperatorTexts, TurnKit, TurnLimits
from chat_proc.agent.prompt.system import build_codec, load_topic
from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.folders import BundleFolders
from chat_proc.bundles.host.environments import Environments
from chat_proc.bundles.host.host_process import HostOptions
from chat_proc.bundles.manifest import CodingSection, Manifest, TurnBudget, merge_react
from chat_proc.bundles.policy import BundlePolicy
from chat_proc.bundles.repositories import BundleTable
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.mcp_servers import TOOLS_DESCRIPTOR, OfferedServer, choose_servers, read_tool_specs
from chat_proc.catalog.tool import Tool, ToolSpec
from chat_proc.channels.actions import FanoutRules
from chat_proc.channels.codec import DAG_ROUNDS, DEFAULT_ROUNDS, choose_codec
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.knowledge.spaces import KnowledgePorts, open_knowledge
from chat_proc.memory.hotset import Hotset
from chat_proc.model_choice import choose_models_of
from chat_proc.model_gateway.gateway import GatewayTurn, ModelGateways
from chat_proc.models.roles import (
    DECISION,
    FAST,
    SELECTION,
    SUMMARY,
    SYNTHESIS,
    TITLE,
    ModelRoles,
    narrow_traits,
)
from chat_proc.sandbox.port import ServeConnection
from chat_proc.settings import (
    MIN_CONTEXT_TOKENS,
    OperatorConfig,
    WorkerSettings,
)
from chat_proc.skills.reader import SkillSpec, load_platform_skills, read_skills
from chat_proc.timeline.compaction.cut import ContextLimits, build_context_limits
from chat_proc.tools.code.program_calls import ProgramDependencies
from chat_proc.tools.coding.run_agent import CodingAgent
from chat_proc.tools.hosted import check_builtin_tools, open_bundle_code
from chat_proc.tools.memory.user_memories import USER_MEMORY_TOOLS
from chat_proc.tools.offered import BUILTIN_TOOLS, OfferedTools
from chat_proc.tools.web.resolver import NameResolver
from chat_proc.tools.web.web_fetch import WebFetchTool
from chat_proc.tools.workflow_files import WorkflowFiles
from chat_proc.tools.workflow_knowledge import READ_TOOL, build_knowledge_tools
from everturn.bundles.registry import DEFAULT_BUNDLE
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor, find_url_secrets
from everturn.core.settings import load_bundle_secrets
from everturn.execution.destinations import MODEL_SERVER
from everturn.execution.messages import RunLimits, parse_uid_range
from everturn.execution.profiles import Profiles
from everturn.files.objects import Objects
from everturn.mcp_connections.connections import TokenStore
from everturn.models.port import LanguageModel, ModelTraits
from everturn.skills.model import NO_SKILLS, Skills
from everturn.skills.reader import PLATFORM_NAMESPACE

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class McpReports:
    """What is known about the MCP servers of a bundle at each moment: see AgentServers."""

    list_problems: Callable[[], Sequence[str]] = tuple
    list_away: Callable[[], Sequence[str]] = tuple
    wait_for_attempts: Callable[[float], Awaitable[Sequence[str]]] | None = None
    """None without servers."""


MAX_REPLY_TOKENS: Final = 32_000
"""Of one reply to a coding agent: the most that Claude Code asks for."""


@dataclass(frozen=True, slots=True)
class KitOpener:
    """Opens the kit of each bundle. Its tools, models and limits are those of the operator, changed by the bundle."""

    settings: WorkerSettings
    config: OperatorConfig
    models: ModelRoles
    objects: Objects
    resolver: NameResolver
    offer: Callable[..., OfferedTools]
    """`offer_tools` with the ports and the sandbox of this worker."""
    tools: Sequence[Tool]
    """Offered to every bundle, beside the built-in ones."""
    of_operator: frozenset[str]
    """The ids of tools that the operator describes. No bundle has a tool with such an id."""
    policy: CallPolicy
    programs: ProgramDependencies
    hotset: Hotset | None
    knowledge: KnowledgePorts
    connections: TokenStore | None
    """People's own accounts at MCP servers; None if they can't connect any here."""
    folders: BundleFolders
    profiles: Profiles | None
    """The execution profiles that programs may use here; None if programs can't run."""
    texts: OperatorTexts
    hosts: HostOptions
    gateways: ModelGateways | None
    """None where no coding agents run."""
    coding_profiles: Profiles
    """Those whose programs have the model server."""

    def build_default(self, offered: OfferedTools) -> BundleKit:
        """The kit of the built-in agent. Raises BadConfig."""
        manifest = Manifest(id=DEFAULT_BUNDLE)
        kit = build_kit(
            self.settings, self.config, self.models, manifest, self.policy, offered=offered, hotset=self.hotset
        )
        return BundleKit(kit, self.texts)

    @asynccontextmanager
    async def open(self, bundle: Bundle) -> AsyncGenerator[BundleKit]:
        """The kit of a version of a bundle, while it is used. Raises Invalid if the version can't be used."""
        manifest = bundle.manifest
        check_builtin_tools(manifest.builtin_tools, self.of_operator)
        profiles = choose_profile(manifest.execution_profile, self.profiles)
        models = await choose_models_of(manifest, self.settings, self.config, self.models)
        coding, missing = None, tuple[str, ...]()
        if manifest.coding.agent and self.gateways is not None:
            try:
                coding = build_coding_agent(manifest.coding, self.coding_profiles, models, self.gateways)
            except Invalid as error:
                missing = (f"coding: {error.detail}",)
                _log.warning("A coding agent is not offered", bundle_id=bundle.id, why=error.detail)
        skills = await asyncio.to_thread(read_bundle_skills, bundle, has_programs=self.profiles is not None)
        secrets = await asyncio.to_thread(load_bundle_secrets, self.settings.secrets_dir, bundle.id)
        secrets = without_git_tokens(secrets, manifest, self.config.bundles.get(bundle.id))
        rules = BundlePolicy(manifest.policy, manifest.builtin_tools.ask)
        policy = self.policy.with_rules(rules)
        programs = replace(self.programs, policy=policy)
        folder = self.folders.find_folder(bundle.id)
        async with (
            open_bundle_code(bundle, secrets, self.hosts, self.objects, BUILTIN_TOOLS | self.of_operator) as hosted,
            open_knowledge(bundle.id, manifest.knowledge, folder, self.knowledge) as knowledge,
        ):

            def build(mcp: Sequence[Tool]) -> TurnKit:
                """The kit with these tools of MCP servers."""
                own = (*hosted.tools, *mcp)
                offered = self.offer(
                    programs,
                    more=(*limit_fetching(self.tools, manifest.builtin_tools.fetch_hosts), *own),
                    profiles=profiles,
                    off=manifest.builtin_tools.off,
                    knowledge=knowledge,
                    workspace=manifest.workspace,
                    bundle_id=bundle.id,
                    coding=coding,
                )
                kit = build_kit(
                    self.settings,
                    self.config,
                    models,
                    manifest,
                    policy,
                    offered=offered,
                    hotset=self.hotset,
                    skills=skills,
                    selectable=self.of_operator.union(tool.spec.tool_id for tool in own),
                )
                if (workflow := hosted.workflow) is None:
                    return kit
                return replace(
                    kit,
                    authored=Authored(
                        workflow,
                        WorkflowFiles(self.objects),
                        build_knowledge_tools(workflow, offered.registry.find(READ_TOOL)),
                        markers=frozenset(manifest.markers),
                    ),
                )

            kit = BundleKit(build(()), self.texts, bundle_id=bundle.id, digest=bundle.digest)
            kit.operations = hosted.operations

            async def offer_mcp(found: Sequence[Tool]) -> None:
                kit.replace(await asyncio.to_thread(build, found))

            async with self.open_mcp_servers(bundle, secrets, offer_mcp) as reports:
                named = BUILTIN_TOOLS.union(self.of_operator, (tool.spec.tool_id for tool in hosted.tools))
                unused = tuple(f"policy: {why}" for why in rules.find_unused(named))
                for why in unused:
                    _log.warning("A rule of a bundle is for no tool", bundle_id=bundle.id, why=why)
                kit.list_problems = lambda: (*missing, *unused, *reports.list_problems())
                kit.list_away = reports.list_away
                yield kit

    def choose_mcp_servers(self, bundle: Bundle) -> tuple[OfferedServer, ...]:
        """The MCP servers of a bundle. Raises Invalid."""
        return choose_servers(
            bundle.manifest.mcp,
            self.config.mcp,
            read_tool_specs(bundle.files.get(TOOLS_DESCRIPTOR, b"")),
            bundle.id,
            is_default=bundle.id == self.config.ai.default_bundle,
        )

    @asynccontextmanager
    async def open_mcp_servers(
        self,
        bundle: Bundle,
        secrets: Mapping[str, str],
        on_change: Callable[[Sequence[Tool]], Awaitable[None]],
        *,
        ready_within_s: float | None = None,
    ) -> AsyncGenerator[McpReports]:
        """The MCP servers of a bundle while it is open, after those that answer in time; without `ready_within_s` in
        READY_WITHIN_S. Raises Invalid."""
        chosen = self.choose_mcp_servers(bundle)
        if not chosen:
            yield McpReports()
            return
        # Imported here, because the SDK takes 0.6 s and 33 MB.
        from chat_proc.mcp.accounts import Sealer
        from chat_proc.mcp.http import HostRules
        from chat_proc.mcp.stdio import ChildOptions
        from chat_proc.mcp.tools import READY_WITHIN_S, Accounts, McpDependencies, open_servers

        hosts, settings = self.hosts, self.settings
        children = ChildOptions(settings.search_path, hosts.environments, hosts.uids, hosts.variables)
        accounts, key = None, settings.connections_key.get_secret_value()
        if self.connections and key and (callback_url := settings.connections_callback_url):
            accounts = Accounts(self.connections, Sealer(key), callback_url, bundle.id)
        rules = HostRules(settings.mcp_hosts)
        dependencies = McpDependencies(self.objects, self.resolver.resolve, rules, children, accounts)
        found = find_mcp_secrets(settings, secrets)
        async with open_servers(
            chosen,
            dependencies,
            find_secret=found.get,
            on_change=on_change,
            files=bundle.files,
            ready_within_s=READY_WITHIN_S if ready_within_s is None else ready_within_s,
        ) as servers:
            yield McpReports(servers.list_problems, servers.list_away, servers.wait_for_attempts)


def find_mcp_secrets(settings: WorkerSettings, secrets: Mapping[str, str]) -> Mapping[str, str]:
    """The secrets that MCP servers can have, by the names under which descriptions refer to them."""
    return {**settings.mcp_secrets, **{f"b:{name}": value for name, value in secrets.items()}}


def limit_fetching(tools: Sequence[Tool], hosts: Sequence[str]) -> Sequence[Tool]:
    """These tools, with one that reads pages of these hosts only; all pages if there are none."""
    return [tool.limit_to(hosts) if hosts and isinstance(tool, WebFetchTool) else tool for tool in tools]


def choose_profile(name: str | None, offered: Profiles | None) -> Profiles | None:
    """The execution profiles of a bundle's programs: that which it names, otherwise all that are offered. Raises
    Invalid if it names another one."""
    if name is None or offered is None:
        return offered
    if name not in offered:
        raise Invalid(f"execution_profile: {name} is not offered here. There are: {', '.join(offered)}.")
    return {name: offered[name]}


def build_coding_agent(
    section: CodingSection, profiles: Profiles, models: ModelRoles, gateways: ModelGateways
) -> CodingAgent:
    """The coding agent of a bundle. Raises Invalid if it can't run here."""
    if (profile := profiles.get(section.profile)) is None:
        raise Invalid(
            f"there is no execution profile {section.profile} here whose network has {MODEL_SERVER}, so there is no "
            "code_agent.run."
        )
    main = gateways.find_model(models, DECISION)
    small = gateways.find_model(models, FAST) if FAST in models.hints else None
    tokens = min(main.traits.max_output_tokens or MAX_REPLY_TOKENS, MAX_REPLY_TOKENS)

    def open_models(turn: GatewayTurn, run: str) -> ServeConnection:
        return gateways.open(main, small, turn, run=run, max_output_tokens=tokens).serve

    return CodingAgent(section.agent, section.profile, profile, open_models, section.instructions)


def without_git_tokens(secrets: Mapping[str, str], manifest: Manifest, table: BundleTable | None) -> Mapping[str, str]:
    """The secrets that the bundle's code and MCP servers can have. A token with which git fetches the bundle, its
    knowledge or its project may open other repositories too, so only git gets it."""
    tokens = [manifest.workspace.token, *(space.token for space in manifest.knowledge)]
    if table is not None:
        tokens.append(table.token)
    return {name: value for name, value in secrets.items() if f"b:{name}" not in tokens}


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
            codec=build_codec(codec, catalog.specs, decisions.max_actions, skills=skills.lines),
            native=build_codec("native", catalog.specs, skills=skills.lines),
            selectable=selectable.intersection(spec.tool_id for spec in catalog.specs),
            selection_model=models.try_model(SELECTION),
            synthesis_model=models.try_model(SYNTHESIS),
            code=offered.posture,
            run=RunLimits() if decisions.code_tools else None,
            history=offered.history,
            skills=skills,
            hotset=hotset,
            collections=offered.collections,
            context=build_context(settings, traits, reply_tokens),
            decisions=decisions,
            workflow=workflow,
            limits=build_turn_limits(
                settings, manifest.limits, react.max_iterations or settings.max_iterations or usual, reply_tokens
            ),
            synthesis=react.synthesis or "auto",
            approval_timeout_s=min(
                settings.approval_timeout_s, manifest.limits.approval_timeout_s or settings.approval_timeout_s
            ),
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
    numbers = range(uids.first, uids.last + 1)
    variables = settings.pip_variables
    hidden = Redactor((*settings.secrets, *find_url_secrets(variables.values())))
    return HostOptions(
        Environments(settings.bundle_environments, pip_settings=variables, redactor=hidden, uids=numbers),
        memory_max_mib=settings.bundle_memory_max_mib,
        uids=numbers,
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

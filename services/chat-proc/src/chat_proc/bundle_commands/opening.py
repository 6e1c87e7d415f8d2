"""Opens a worker without a platform for a test of a bundle: conversations are in memory and the model is scripted;
everything else is real."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from chat_proc.agent.kit import BundleKit, LoopDependencies
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bundle_commands.cases import CaseFile, McpAnswer, Reply
from chat_proc.bundle_commands.playing import Stage
from chat_proc.bundle_commands.servers import find_silent
from chat_proc.bundles.bundle import Bundle
from chat_proc.bundles.folders import BundleFolders
from chat_proc.bundles.manifest import AgentConfig, BundleProps
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.mcp_servers import OfferedServer
from chat_proc.catalog.tool import Tool
from chat_proc.channels.codec import encode_name
from chat_proc.knowledge.spaces import KnowledgePorts, SpaceIndexer
from chat_proc.models.retry import ModelRetryLimits
from chat_proc.models.roles import SCRIPTED, ModelChoice, ModelRoles, RoleChoices
from chat_proc.opening import KitOpener, McpReports, build_host_options, build_texts
from chat_proc.sandbox.opening import OpenedSandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.settings import OperatorConfig, WorkerSettings
from chat_proc.tools.code.program_calls import ProgramDependencies
from chat_proc.tools.memory.memsearch import MemsearchTool
from chat_proc.tools.offered import ToolPorts, offer_tools
from chat_proc.tools.web.resolver import NameResolver
from chat_proc.tools.workspace.history import open_projects
from chat_proc.worker.announcing import Announcer
from chat_proc.worker.ringing import Ringer
from chat_proc.worker.runner import RunnerDependencies, TurnRunner
from everturn.core.cancellation import Stragglers
from everturn.core.clock import SystemClock, now_ms
from everturn.core.errors import EverturnError, Invalid
from everturn.core.failpoints import Failpoints
from everturn.core.ids import RandomIds
from everturn.core.logging import Redactor
from everturn.core.retry import RetryPolicy
from everturn.files.objects import Objects
from everturn_testing.events.events import MemoryEvents
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.history import MemoryWorkspaceChanges
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.memory.snippets import MemorySnippets
from everturn_testing.models.scripted_file import QueuedScriptedModel, ScriptedCall, ScriptedRound
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.turns.approvals import MemoryApprovals
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.effects import MemoryEffects
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.reading import MemoryTurns, NoSweeps
from everturn_testing.turns.timelines import MemoryTimelines

LEASE_S: Final = 3_600.0
"""Longer than a test, because nobody renews it."""
OWNER: Final = "test"
MAX_THRESHOLD: Final = 1_000
"""The highest value of react.tool_selection_threshold, so that no turn asks the model for a choice among tools."""


@dataclass(frozen=True, slots=True)
class CaseOpener(KitOpener):
    """Answers the tools of MCP servers that the test has answers for. Other servers with a command are started; none
    with a url is contacted."""

    answers: Mapping[str, McpAnswer] = field(default_factory=lambda: {})
    silent: dict[str, str] = field(default_factory=dict[str, str])
    """The servers that neither answered nor failed in time: the reasons by alias. Later tests don't start them."""

    def choose_mcp_servers(self, bundle: Bundle) -> tuple[OfferedServer, ...]:
        chosen = KitOpener.choose_mcp_servers(self, bundle)
        started = (each for each in chosen if each.server.url is None and not self._list_answers(each.alias))
        return tuple(each for each in started if each.alias not in self.silent)

    @asynccontextmanager
    async def open_mcp_servers(
        self,
        bundle: Bundle,
        secrets: Mapping[str, str],
        on_change: Callable[[Sequence[Tool]], Awaitable[None]],
        *,
        ready_within_s: float | None = 0,
    ) -> AsyncGenerator[McpReports]:
        fixed = self._build_fixed(KitOpener.choose_mcp_servers(self, bundle))

        async def offer(found: Sequence[Tool]) -> None:
            await on_change((*fixed, *found))

        if fixed:
            await on_change(fixed)
        opening = KitOpener.open_mcp_servers(self, bundle, secrets, offer, ready_within_s=ready_within_s)
        async with opening as reports:
            if reports.wait_for_attempts is not None:
                self.silent.update(await find_silent(reports.wait_for_attempts))
            silent = tuple(f"mcp.{alias}: {why}" for alias, why in self.silent.items())
            yield replace(
                reports,
                list_problems=lambda: (*silent, *reports.list_problems()),
                list_away=lambda: sorted({*self.silent, *reports.list_away()}),
            )

    def _list_answers(self, alias: str) -> dict[str, McpAnswer]:
        """The answers of this server, by the names of its tools."""
        begin = f"mcp.{alias}."
        return {name.removeprefix(begin): each for name, each in self.answers.items() if name.startswith(begin)}

    def _build_fixed(self, chosen: Sequence[OfferedServer]) -> tuple[Tool, ...]:
        if not self.answers:
            return ()
        # Imported here, because the SDK takes 0.6 s.
        from chat_proc.bundle_commands.fixed_answers import build_fixed_tools

        known = {f"mcp.{each.alias}.{tool}" for each in chosen for tool in self._list_answers(each.alias)}
        if unknown := sorted(self.answers.keys() - known):
            aliases = ", ".join(f"mcp.{each.alias}" for each in chosen) or "none"
            raise Invalid(f"mcp_answers: The agent has no server for {unknown[0]!r}. Its servers are: {aliases}.")
        tools = [build_fixed_tools(each, self._list_answers(each.alias), self.objects) for each in chosen]
        return tuple(tool for of_server in tools for tool in of_server)


@asynccontextmanager
async def open_stage(
    settings: WorkerSettings,
    private: Path,
    folders: BundleFolders,
    opened: OpenedSandbox | SandboxUnavailable,
    knowledge: KnowledgePorts,
    resolver: NameResolver,
    silent: dict[str, str],
    bundle: Bundle,
    case: CaseFile,
) -> AsyncGenerator[Stage]:
    """The stage of one test. `silent` is what all tests know of MCP servers. Raises Invalid if the bundle can't be
    opened."""
    bundle = bundle.override(BundleProps(settings=case.settings)) if case.settings else bundle
    react = bundle.manifest.agent.model_copy(update={"tool_selection_threshold": MAX_THRESHOLD})
    manifest = bundle.manifest.model_copy(update={"models": {}, "config": AgentConfig(react=react)})
    bundle = replace(bundle, manifest=manifest)
    _save_secrets(settings, bundle.id, case.secrets)
    await _build_knowledge(bundle, folders, knowledge)
    platform, objects, model = MemoryPlatform(SystemClock()), MemoryObjects(), QueuedScriptedModel()
    conversations = MemoryConversationReader(platform)
    policy = CallPolicy(settings.address_rules, conversations)

    def set_replies(replies: Sequence[Reply]) -> None:
        model.left.clear()
        for each in replies:
            calls = [ScriptedCall(name=encode_name(call.tool), arguments=json.dumps(call.args)) for call in each.calls]
            # In one piece: what a person sees is not at stake here.
            scripted = ScriptedRound(reply=each.reply, calls=tuple(calls), then=each.then, chunk_chars=100_000)
            model.left.append((scripted, each.shows))

    async with AsyncExitStack() as stack:
        attachments = AttachmentReader(objects)
        stack.push_async_callback(attachments.close)
        stragglers = Stragglers()
        stack.push_async_callback(stragglers.close, 1.0)
        changes = MemoryWorkspaceChanges(platform)
        projects = await stack.enter_async_context(open_projects(changes, objects, settings.git_rules))
        ports = ToolPorts(
            objects,
            attachments,
            MemoryArtifacts(platform),
            conversations,
            MemoryTimelines(platform),
            projects=projects,
        )
        opener = CaseOpener(
            settings=settings,
            config=OperatorConfig(),
            models=ModelRoles(RoleChoices(ModelChoice(SCRIPTED, "test", "a test")), lambda _: model),
            objects=objects,
            resolver=resolver,
            offer=partial(offer_tools, ports, opened.sandbox if isinstance(opened, OpenedSandbox) else opened),
            tools=(MemsearchTool(MemorySnippets(platform), knowledge.embedder),),
            of_operator=frozenset(),
            policy=policy,
            programs=ProgramDependencies(MemoryEffects(platform), policy, stragglers),
            hotset=None,
            knowledge=knowledge,
            connections=None,
            folders=folders,
            profiles=opened.profiles if isinstance(opened, OpenedSandbox) else None,
            texts=build_texts(OperatorConfig()),
            hosts=build_host_options(settings),
            gateways=None,
            coding_profiles={},
            answers=case.mcp_answers,
            silent=silent,
        )
        kit = await stack.enter_async_context(opener.open(bundle))
        ids = RandomIds(partial(now_ms, platform.clock))
        parts = _build_runner_parts(platform, kit, objects, attachments, stragglers, ids)
        yield Stage(
            kit=kit,
            inbox=MemoryInbox(platform),
            leases=parts.leases,
            timelines=parts.timelines,
            approvals=parts.approvals,
            objects=objects,
            ids=ids,
            model=model,
            set_replies=set_replies,
            build_runner=partial(TurnRunner, parts),
            turn_s=settings.turn_wall_time_s,
        )


def _build_runner_parts(
    platform: MemoryPlatform,
    kit: BundleKit,
    objects: Objects,
    attachments: AttachmentReader,
    stragglers: Stragglers,
    ids: RandomIds,
) -> RunnerDependencies:
    """What runs the turns of a test."""
    leases = MemoryLeases(platform, owner=OWNER, ttl_s=LEASE_S)
    timelines, events, ringer = MemoryTimelines(platform), MemoryEvents(), Ringer(MemoryDoorbells(), NoSweeps())
    clock, retries = platform.clock, RetryPolicy()
    announcer = Announcer(
        leases=leases,
        timelines=timelines,
        turns=MemoryTurns(platform),
        writer=events,
        ringer=ringer,
        clock=clock,
        retries=retries,
    )
    loop = LoopDependencies(
        objects=objects,
        attachments=attachments,
        stragglers=stragglers,
        next_call_id=ids.call,
        next_turn_id=ids.turn,
        failpoints=Failpoints(""),
        redactor=Redactor(),
        model_retries=ModelRetryLimits(),
    )
    return RunnerDependencies(
        leases=leases,
        timelines=timelines,
        writer=events,
        artifacts=MemoryArtifacts(platform),
        approvals=MemoryApprovals(platform, owner=OWNER),
        kits=_OneKit(kit),
        loop=loop,
        announcer=announcer,
        ringer=ringer,
        clock=clock,
        retries=retries,
    )


def _save_secrets(settings: WorkerSettings, bundle_id: str, secrets: Mapping[str, str]) -> None:
    if settings.secrets_dir is None:
        return
    folder = settings.secrets_dir / "bundles" / bundle_id
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, value in secrets.items():
        (folder / name).write_text(value, encoding="utf-8")


async def _build_knowledge(bundle: Bundle, folders: BundleFolders, ports: KnowledgePorts) -> None:
    """Build the spaces that are not built yet, so that no test begins without them. Raises Invalid."""
    for space in bundle.manifest.knowledge:
        indexer = SpaceIndexer(bundle.id, space, folders.find_folder(bundle.id), ports)
        try:
            await indexer.update()
        except (EverturnError, TimeoutError) as error:
            where = f"The knowledge space {space.name!a}" if space.name else "The knowledge space"
            reason = (error.detail if isinstance(error, EverturnError) else "") or str(error) or "It took too long."
            raise Invalid(f"{where} can't be built: {reason}") from error


class _OneKit:
    """Implements TurnKits: the same kit for all turns."""

    def __init__(self, kit: BundleKit) -> None:
        self.base = kit

    @asynccontextmanager
    async def use(self, bundle_id: str | None, digest: str | None) -> AsyncGenerator[BundleKit]:
        yield self.base

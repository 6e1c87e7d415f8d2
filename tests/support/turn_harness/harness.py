"""Real turns over rows in memory: accept messages, let workers claim and run, look at what they wrote and published."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from chat_proc.agent.authored.port import RETURN_GRACE_S, Authored, Workflow
from chat_proc.agent.kit import BundleKit, LoopDependencies, Synthesis, TurnKit, TurnLimits, WorkflowKind
from chat_proc.agent.prompt.system import build_codec
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.catalog.call_policy import AddressRules, CallPolicy
from chat_proc.catalog.tool import Tool, ToolRegistry
from chat_proc.channels.actions import FanoutRules
from chat_proc.channels.codec import Codec
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.memory.hotset import Hotset
from chat_proc.models.retry import ModelRetryLimits
from chat_proc.timeline.compaction.cut import ContextLimits
from chat_proc.tools.context.hide import HideTool
from chat_proc.tools.context.read import ReadTool
from chat_proc.tools.context.resolve import ReadPorts
from chat_proc.tools.plan import PlanTool
from chat_proc.tools.workflow_files import WorkflowFiles
from chat_proc.tools.workflow_knowledge import build_knowledge_tools
from chat_proc.tools.workspace.write import WriteTool
from chat_proc.worker.announcing import Announcer
from chat_proc.worker.ringing import Ringer
from chat_proc.worker.runner import RunnerDependencies, TurnRunner
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.cancellation import Stragglers
from everturn.core.clock import iso
from everturn.core.errors import StaleFence
from everturn.core.failpoints import Failpoints
from everturn.core.identity import Lane, Principal
from everturn.core.ids import SignalId, TurnId
from everturn.core.logging import Redactor
from everturn.core.retry import RetryPolicy
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.model import Envelope, parse_envelope
from everturn.events.turn_view import build_signal_event, build_signal_view, build_state
from everturn.events.views import StateView
from everturn.files.model import Upload
from everturn.models.port import CodecName
from everturn.models.tokens import LearnedRatios
from everturn.skills.model import NO_SKILLS
from everturn.timeline.blocks import Block, Body, ExitBody
from everturn.timeline.turns import ExternalEvent, SignalKind, SignalState, Turn
from everturn.turns.inbox import IncomingMessage, IncomingSignal, Receipt
from everturn.turns.model import Claim
from everturn_testing.core import FixedClock, SequentialIds
from everturn_testing.events.events import MemoryEvents
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import ConversationRow, MemoryPlatform
from everturn_testing.models.scripted_model import Script, ScriptedModel
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.turns.approvals import MemoryApprovals
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.reading import MemoryTurns, NoSweeps
from everturn_testing.turns.timelines import MemoryTimelines
from turn_harness.drivers import Gate, GatedEvents, GatedLeases, GatedModel, GatedTimelines

ANN = Principal("acme", "main", "ann")
LEASE_S = 15.0
UNTIL_S = 20.0


class Bench:
    """One conversation and everything around it. Scripts are played in order, for any caller."""

    def __init__(
        self,
        *scripts: Script,
        tools: Iterable[Tool] = (),
        limits: TurnLimits | None = None,
        model: ScriptedModel | None = None,
        fallback: ScriptedModel | None = None,
        title_model: ScriptedModel | None = None,
        summary_model: ScriptedModel | None = None,
        max_tokens: int = 80_000,
        chunk_chars: int = 16,
        fanout: bool = False,
        one_thinking: bool = False,
        codec: CodecName = "channels",
        synthesis: Synthesis = "off",
        selectable: Iterable[str] = (),
        selection_threshold: int = 12,
        workflow: WorkflowKind = "loop",
        authored: Workflow | None = None,
        grace_s: float = RETURN_GRACE_S,
        hotset: Hotset | None = None,
        tick_ms: int = 1,
        tracing: Tracing = NO_TRACING,
        address_rules: AddressRules = AddressRules(),  # noqa: B008 - a frozen value
    ) -> None:
        self.address_rules = address_rules
        self.hotset = hotset
        self.skills = NO_SKILLS
        self.tracing = tracing
        self.clock = FixedClock(tick_ms=tick_ms)
        self.ids = SequentialIds()
        self.platform = MemoryPlatform(self.clock)
        self.inbox = MemoryInbox(self.platform)
        self.events = MemoryEvents()
        self.objects = MemoryObjects()
        self.doorbells = MemoryDoorbells()
        self.turns = MemoryTurns(self.platform)
        self.model = model or ScriptedModel(scripts, chunk_chars=chunk_chars)
        self.fallback = fallback
        self.title_model = title_model
        self.summary_model = summary_model
        self.context = ContextLimits(max_tokens)
        self.scripts = scripts
        self.fanout = fanout
        self.one_thinking = one_thinking
        self.codec: CodecName = codec
        self.synthesis: Synthesis = synthesis
        self.selectable = frozenset(selectable)
        self.selection_threshold = selection_threshold
        self.workflow: WorkflowKind = workflow
        self.authored = authored
        self.grace_s = grace_s
        self.hinted: dict[str, ScriptedModel] = {}
        """The models that a plan can give its steps to."""
        self.limits = limits or TurnLimits()
        self.ratios = LearnedRatios()
        self.registry = ToolRegistry([*tools, build_read_tool(self), WriteTool(self.objects), PlanTool(), HideTool()])
        self.stragglers = Stragglers(grace_s=0.05)
        self.redactor = Redactor()
        self.conversation_id = self.ids.conversation()
        self.snapshots: list[StateView] = []
        self.hints: list[Envelope] = []
        self.workers: list[BenchWorker] = []
        self.last_published = ORIGIN
        """The newest id that was ever in the event stream."""

    async def say(self, text: str, kind: SignalKind | None = None) -> TurnId | SignalId:
        """A message of the person: a turn when the conversation is idle, else a signal."""
        message = IncomingMessage(
            conversation_id=self.conversation_id,
            create=self.conversation_id not in self.platform.conversations,
            text=text,
            uploads=(),
            turn_id=self.ids.turn(),
            signal_id=self.ids.signal(),
            kind=kind,
        )
        receipt = await self.inbox.accept_message(ANN, message, None)
        if receipt.signal_id is None:
            self.keep_snapshot()
        self._ring()
        return receipt.signal_id or receipt.turn_id

    async def signal(self, kind: SignalKind, text: str = "", *, uploads: tuple[Upload, ...] = ()) -> SignalId:
        """A followup, steer or cancel into the open turn."""
        signal = IncomingSignal(self.ids.signal(), kind, text, uploads)
        receipt = await self.inbox.accept_signal(ANN, self.conversation_id, signal, None)
        self._ring()
        assert receipt.signal_id is not None
        return receipt.signal_id

    async def tell(self, event: ExternalEvent, text: str = "", *, uploads: tuple[Upload, ...] = ()) -> Receipt:
        """An external event, which may come at any time."""
        if self.conversation_id not in self.platform.conversations:
            row = ConversationRow(self.conversation_id, ANN)
            self.platform.conversations[row.id] = row
        reported = IncomingSignal(
            self.ids.signal(), SignalKind.EVENT, text, uploads, event=event, turn_id=self.ids.turn()
        )
        receipt = await self.inbox.accept_signal(ANN, self.conversation_id, reported, None)
        if receipt.signal_id is None:
            self.keep_snapshot()
        self._ring()
        return receipt

    def waiting_signals(self) -> list[SignalId]:
        """What nobody has answered yet, oldest first."""
        rows = self.platform.signals.values()
        return [row.signal.id for row in rows if row.signal.state is SignalState.ACCEPTED]

    async def retract(self, signal_id: SignalId) -> None:
        """Withdraw a signal; a hint notifies clients."""
        signal = await self.inbox.retract_signal(ANN, self.conversation_id, signal_id)
        reported = build_signal_event(build_signal_view(signal, tenant=ANN.tenant, project=ANN.project))
        where = {"conversation_id": self.conversation_id, "turn_id": signal.turn_id}
        self.hints.append(Envelope(type=reported.type, ts=iso(self.clock.now()), data=reported, **where))
        self._ring()

    def upload(self, filename: str, data: bytes) -> Upload:
        """A text file that is stored already."""
        key = f"conv/{hashlib.sha256(data).hexdigest()}"
        self.objects.stored[key] = data
        digest = hashlib.sha256(data).hexdigest()
        now = self.clock.now()
        return Upload(self.ids.artifact(), filename, "text/csv", len(data), digest, key, "not scanned", now)

    def hire(self, *, dies_at: int | None = None, failpoint: str = "") -> "BenchWorker":
        """One more worker; `dies_at` counts its calls to the outside, a `failpoint` that raises makes it crash."""
        worker = BenchWorker(self, f"worker-{len(self.workers) + 1}", Gate(dies_at), Failpoints(failpoint))
        worker.may_crash = bool(failpoint)
        self.workers.append(worker)
        return worker

    async def work(self) -> None:
        """A worker runs whatever there is to do, to the last turn."""
        await self.hire().work()

    def expire_lease(self) -> None:
        self.clock.advance(LEASE_S + 1)

    def note_published(self, cursor: EventCursor) -> None:
        self.last_published = max(self.last_published, cursor)

    def keep_snapshot(self) -> None:
        self.snapshots.append(self.state())

    def state(self) -> StateView:
        """What REST reads now."""
        page = self.turns.read(self.conversation_id)
        return build_state(page, tenant=ANN.tenant, project=ANN.project)

    @property
    def blocks(self) -> list[Block]:
        return self.platform.conversations[self.conversation_id].blocks

    @property
    def types(self) -> list[str]:
        """The types of all blocks, without those before the first round."""
        return [block.type.value for block in self.blocks if block.round > 0]

    @property
    def turn_rows(self) -> list[Turn]:
        return [row.turn for row in self.platform.turns_of(self.conversation_id)]

    @property
    def exits(self) -> list[ExitBody]:
        """The terminal blocks, in order."""
        return [block.body for block in self.blocks if isinstance(block.body, ExitBody)]

    async def published(self) -> list[Envelope]:
        """Everything in the event stream."""
        entries = await self.events.load_after(self.conversation_id, ORIGIN, max_entries=1_000_000)
        return [parse_envelope(event.payload) for entry in entries for event in entry.events]

    def texts(self, kind: type[Body]) -> list[str]:
        """The texts of all blocks with this body."""
        return [getattr(block.body, "text", "") for block in self.blocks if isinstance(block.body, kind)]

    def _ring(self) -> None:
        for worker in self.workers:
            worker.ring()


class BenchWorker:
    """A worker process as far as turns are concerned."""

    def __init__(self, bench: Bench, owner: str, gate: Gate, failpoints: Failpoints) -> None:
        self.bench = bench
        self.gate = gate
        self.leases = GatedLeases(bench.platform, gate, owner=owner, ttl_s=LEASE_S)
        self.approvals = MemoryApprovals(bench.platform, owner=owner)
        self.timelines = GatedTimelines(MemoryTimelines(bench.platform), gate, bench.keep_snapshot)
        self.writer = GatedEvents(bench.events, gate, bench.note_published)
        self.current: TurnRunner | None = None
        self.may_crash = False
        self.deaf = False
        """Whether bells don't reach it."""
        self.kit = build_kit(bench, gate)
        self.parts = RunnerDependencies(
            leases=self.leases,
            timelines=self.timelines,
            writer=self.writer,
            artifacts=MemoryArtifacts(bench.platform),
            approvals=self.approvals,
            kits=OneKit(self.kit),
            loop=build_loop_dependencies(bench, failpoints),
            announcer=self.build_announcer(),
            ringer=Ringer(bench.doorbells, NoSweeps()),
            clock=bench.clock,
            retries=RetryPolicy(),
        )

    def build_announcer(self) -> Announcer:
        return Announcer(
            leases=self.leases,
            timelines=self.timelines,
            turns=self.bench.turns,
            writer=self.writer,
            ringer=Ringer(self.bench.doorbells, NoSweeps()),
            clock=self.bench.clock,
            retries=RetryPolicy(),
            publish_s=0.2,
        )

    def change(self, **parts: Any) -> None:
        """Use these parts from the next claim on."""
        self.parts = replace(self.parts, **parts)

    def build_runner(self, claim: Claim, requested_at_s: float) -> TurnRunner:
        return TurnRunner(self.parts, claim, requested_at_s)

    def ring(self) -> None:
        if self.current is not None and not self.deaf:
            self.current.ring_inbox()

    async def work(self) -> None:
        """Claim and run until there is nothing to do, or this worker dies."""
        while not self.gate.dead.is_set() and await self.run_one():
            pass

    async def run_one(self) -> bool:
        """One claim; False when there is nothing to claim, or the worker died or lost its lease."""
        requested_at_s = self.bench.clock.monotonic()
        claim = await self.leases.try_claim(self.bench.conversation_id)
        if claim is None:
            return False
        self.current = self.build_runner(claim, requested_at_s)
        working = asyncio.create_task(self.current.run())
        dying = asyncio.create_task(self.gate.dead.wait())
        try:
            await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.current = None
            working.cancel()
            dying.cancel()
            await asyncio.wait({working, dying})
        error = None if working.cancelled() else working.exception()
        if error is not None and not isinstance(error, StaleFence) and not self.may_crash:
            raise error
        return error is None and not working.cancelled()


def build_read_tool(bench: Bench) -> ReadTool:
    platform = bench.platform
    ports = ReadPorts(MemoryArtifacts(platform), MemoryConversationReader(platform), MemoryTimelines(platform))
    return ReadTool(bench.objects, AttachmentReader(bench.objects), ports)


def build_test_codec(bench: Bench, name: CodecName | None = None) -> Codec:
    """A codec with short prompts, the one of the bench unless it is named."""
    built = build_codec(name or bench.codec, bench.registry.specs)
    return replace(built, system_prompt="You are the agent.", closing_prompt="Close now: {cap}.")


class OneKit:
    """Implements TurnKits: the same kit for all turns."""

    def __init__(self, kit: TurnKit) -> None:
        self.base = BundleKit(kit)

    @asynccontextmanager
    async def use(self, bundle_id: str | None, digest: str | None) -> AsyncGenerator[BundleKit]:
        yield self.base


def build_kit(bench: Bench, gate: Gate) -> TurnKit:
    code_tools = frozenset(spec.tool_id for spec in bench.registry.specs if spec.takes_code)
    fanout = FanoutRules({spec.tool_id: spec.strategy for spec in bench.registry.specs}, code_tools)
    kit = TurnKit(
        model=GatedModel(bench.model, gate),
        fallback=bench.fallback,
        summary_model=GatedModel(bench.summary_model, gate) if bench.summary_model else None,
        title_model=bench.title_model,
        title_prompt="Name it.",
        catalog=bench.registry,
        policy=CallPolicy(bench.address_rules, MemoryConversationReader(bench.platform)),
        codec=build_test_codec(bench),
        native=build_test_codec(bench, "native"),
        synthesis=bench.synthesis,
        selectable=bench.selectable,
        selection_threshold=bench.selection_threshold,
        code="no programs here",
        context=bench.context,
        limits=bench.limits,
        decisions=DecisionLimits(
            code_tools=code_tools, one_thinking=bench.one_thinking, fanout=fanout if bench.fanout else None
        ),
        history=WorkspaceHistory(MemoryArtifacts(bench.platform)),
        skills=bench.skills,
        hotset=bench.hotset,
        workflow=bench.workflow,
        authored=build_authored(bench),
        ratios=bench.ratios,
    )
    hinted = {role: replace(kit, model=GatedModel(model, gate)) for role, model in bench.hinted.items()}
    return replace(kit, hinted=hinted)


def build_authored(bench: Bench) -> Authored | None:
    if bench.authored is None:
        return None
    knowledge = build_knowledge_tools(bench.authored, bench.registry.find("react.read"))
    return Authored(bench.authored, WorkflowFiles(bench.objects), knowledge, bench.grace_s)


def build_loop_dependencies(bench: Bench, failpoints: Failpoints) -> LoopDependencies:
    return LoopDependencies(
        objects=bench.objects,
        attachments=AttachmentReader(bench.objects),
        stragglers=bench.stragglers,
        next_call_id=bench.ids.call,
        next_turn_id=bench.ids.turn,
        failpoints=failpoints,
        redactor=bench.redactor,
        model_retries=ModelRetryLimits(),
        tracing=bench.tracing,
        monotonic=bench.clock.monotonic,
    )


async def until(condition: Callable[[], bool]) -> None:
    """Let the other tasks and their threads go on until the condition holds."""
    deadline_s = time.monotonic() + UNTIL_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError("The condition never came true.")
        await asyncio.sleep(0)


async def hear_all(bench: Bench) -> int:
    """Take all doorbells that have been rung, and count them."""
    heard = 0
    while await bench.doorbells.next_ring(list(Lane), timeout_s=0.01) is not None:
        heard += 1
    return heard

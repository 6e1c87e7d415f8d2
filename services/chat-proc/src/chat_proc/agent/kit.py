"""What a turn runs with: its models, tools, prompts and limits, chosen for each turn."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal, Protocol

from chat_proc.agent.authored.port import Authored
from chat_proc.agent.prompt.system import build_codec
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bundles.host.operations import BundleOperations
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.tool import Tool, ToolRegistry
from chat_proc.channels.codec import Codec
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.knowledge.collections import CollectionReader
from chat_proc.memory.hotset import Hotset
from chat_proc.models.retry import ModelRetryLimits
from chat_proc.models.roles import narrow_traits
from chat_proc.timeline.compaction.cut import ContextLimits
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.cancellation import Stragglers
from everturn.core.failpoints import Failpoints
from everturn.core.identity import Principal
from everturn.core.ids import CallId, TurnId
from everturn.core.logging import Redactor
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.execution.messages import RunLimits
from everturn.files.objects import Objects
from everturn.models.port import LanguageModel, ModelTraits
from everturn.models.tokens import LearnedRatios
from everturn.skills.model import NO_SKILLS, SkillLine, Skills
from everturn.timeline.progress import TurnProgress

Synthesis = Literal["auto", "on", "off"]
"""Whether a separate call writes the answer of a turn that called tools; `auto` does it with the codec json only."""

WorkflowKind = Literal["loop", "dag"]
"""How a turn is run: as one loop of rounds, or as a plan of steps that run side by side."""

MAX_KEPT_KITS = 64
"""Kits for chosen tools that a worker keeps. Building one takes a few milliseconds."""
APPROVAL_TIMEOUT_S = 86_400.0
"""How long a person has to answer, unless the operator says otherwise."""


@dataclass(frozen=True, slots=True)
class OperatorTexts:
    """What an operator adds to the prompts of all turns, and to those of a tenant and of its projects."""

    common: str = ""
    of_tenants: Mapping[str, str] = field(default_factory=lambda: {})
    of_projects: Mapping[tuple[str, str], str] = field(default_factory=lambda: {})

    def find(self, principal: Principal) -> str:
        """The texts for the turns of this person."""
        tenant, project = principal.tenant, principal.project
        texts = self.common, self.of_tenants.get(tenant), self.of_projects.get((tenant, project))
        return "\n\n".join(filter(None, texts))


NO_TEXTS: Final = OperatorTexts()


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """What one turn may spend: rounds, time, tokens and money. At a reached cap it ends with a closing answer.

    `rounds` is the base; each followup adds one round, until the base is doubled.
    """

    rounds: int = 15
    wall_time_s: float = 1800.0
    tokens: int = 2_000_000
    cost_usd: float = 10.0
    max_output_tokens: int = 8192
    """Limit for one reply."""
    max_repairs: int = 2
    """Unusable replies in a row that are answered with a notice; the next one leads to the closing call."""
    finalize_rounds: int = 2
    """Rounds left to the turn after a steer with text: the round that reads it, and those after it."""
    finalize_output_tokens: int = 3_000
    """Limit for one reply in such a round."""


@dataclass(frozen=True, slots=True)
class TurnKit:
    """What one turn runs with. Kits are shared by turns, so nothing in them belongs to one turn."""

    model: LanguageModel
    """Decides in each round, and writes the closing answer."""
    catalog: ToolRegistry
    policy: CallPolicy
    codec: Codec
    """How the deciding models act."""
    code: str
    """How programs run here, or why they can't, in words for the model."""
    context: ContextLimits
    instructions: str = ""
    """Of the operator and of the bundle's author, part of the prompt."""
    limits: TurnLimits = field(default_factory=TurnLimits)
    decisions: DecisionLimits = field(default_factory=DecisionLimits)
    native: Codec | None = None
    """For the rest of a turn whose model calls a tool in its provider's own form, although its prompt has another."""
    fallback: LanguageModel | None = None
    """Decides if the deciding model has failed."""
    summary_model: LanguageModel | None = None
    """Without one, summaries are written by rules."""
    selectable: frozenset[str] = frozenset()
    """The tools among which a turn chooses if there are more than `selection_threshold`: those of the operator."""
    selection_threshold: int = 12
    selection_model: LanguageModel | None = None
    """Chooses tools; None means the deciding model."""
    synthesis: Synthesis = "auto"
    synthesis_model: LanguageModel | None = None
    """Writes answers from the steps of a turn; None means the deciding model."""
    workflow: WorkflowKind = "loop"
    authored: Authored | None = None
    """The workflow of the bundle's author, which runs the turn; `workflow` does not apply then."""
    hinted: Mapping[str, "TurnKit"] = field(default_factory=lambda: {})
    """The kits of steps that a plan gives to another model, by the role of that model."""
    title_model: LanguageModel | None = None
    """Without one, a title is the beginning of the first message."""
    title_prompt: str = ""
    run: RunLimits | None = None
    """The limits of one program; None if none can run."""
    history: WorkspaceHistory | None = None
    """Knows the files of earlier turns; without it ANNOUNCE lists only this turn's."""
    skills: Skills = NO_SKILLS
    """Those of the bundle; a turn can have more."""
    project_skills: tuple[SkillLine, ...] = ()
    """What the prompt says of those that were uploaded to the project of the turn."""
    hotset: Hotset | None = None
    """None if memories of persons are switched off."""
    collections: CollectionReader | None = None
    """None if collections, or the tool that searches them, are switched off."""
    away: tuple[str, ...] = ()
    """The aliases of the bundle's MCP servers whose tools are missing, because they can't be used."""
    approval_timeout_s: float = APPROVAL_TIMEOUT_S
    ratios: LearnedRatios = field(default_factory=LearnedRatios)

    def codec_of(self, progress: TurnProgress) -> Codec:
        """The codec of a turn's next round."""
        return self.native if progress.calls_natively and self.native is not None else self.codec

    @property
    def chooses_tools(self) -> bool:
        """Whether a turn offers only some of the selectable tools."""
        return len(self.selectable) > self.selection_threshold

    def offer(self, chosen: Sequence[str]) -> "TurnKit":
        """The same kit without the selectable tools that were not chosen."""
        return self.without(self.selectable.difference(chosen))

    def without(self, tool_ids: Collection[str]) -> "TurnKit":
        """The same kit without these tools."""
        return self._offer(self.catalog.without(tool_ids))

    def plus(self, tools: Collection[Tool]) -> "TurnKit":
        """The same kit with these tools too; each takes the place of one with its id."""
        return self._offer(self.catalog.plus(tools)) if tools else self

    def _offer(self, catalog: ToolRegistry) -> "TurnKit":
        decisions = self.decisions
        if decisions.fanout is not None:
            strategies = {spec.tool_id: spec.strategy for spec in catalog.specs}
            decisions = replace(decisions, fanout=replace(decisions.fanout, strategies=strategies))
        return replace(self, catalog=catalog, decisions=decisions)._with_prompts()

    def instruct(self, instructions: str) -> "TurnKit":
        """The same kit with these instructions."""
        if instructions == self.instructions:
            return self
        hinted = {role: kit.instruct(instructions) for role, kit in self.hinted.items()}
        return replace(self, instructions=instructions, hinted=hinted)._with_prompts()

    def describe_skills(self, project: tuple[SkillLine, ...]) -> "TurnKit":
        """The same kit with these skills of a project in its prompts."""
        if project == self.project_skills:
            return self
        hinted = {role: kit.describe_skills(project) for role, kit in self.hinted.items()}
        return replace(self, project_skills=project, hinted=hinted)._with_prompts()

    def note_away(self, aliases: tuple[str, ...]) -> "TurnKit":
        """The same kit, which says that the tools of these MCP servers are missing."""
        if aliases == self.away:
            return self
        hinted = {role: kit.note_away(aliases) for role, kit in self.hinted.items()}
        return replace(self, away=aliases, hinted=hinted)

    def _with_prompts(self) -> "TurnKit":
        tools, text = self.catalog.specs, self.instructions
        skills = (*self.skills.lines, *self.project_skills)
        codec = build_codec(self.codec.name, tools, self.decisions.max_actions, text, skills)
        native = None if self.native is None else build_codec("native", tools, 1, text, skills)
        return replace(self, codec=codec, native=native)

    def synthesizes(self, codec: Codec) -> bool:
        """Whether a separate call writes the answers of turns that called tools."""
        return self.synthesis == "on" or (self.synthesis == "auto" and codec.name == "json")

    def find_notes_model(self, codec: Codec) -> LanguageModel | None:
        """The model that writes the working summary of a turn and suggestions for the next one. None if the codec has
        places for them, or summaries are written by rules."""
        return None if codec.name == "channels" else self.summary_model

    @property
    def traits(self) -> ModelTraits:
        """What both deciding models can do: a request must suit both."""
        return narrow_traits(self.model, self.fallback)

    @property
    def has_prices(self) -> bool:
        """Whether the cost of every model that a turn can call is known."""
        optional = (self.fallback, self.summary_model, self.title_model, self.synthesis_model, self.selection_model)
        models = (self.model, *optional, *(kit.model for kit in self.hinted.values() if self.workflow == "dag"))
        return all(model.traits.has_price for model in models if model is not None)


class BundleKit:
    """The kit of one version of a bundle, as each turn needs it. `bundle_id` and `digest` name the version in the
    registry; they are None if it is not there."""

    def __init__(
        self,
        kit: TurnKit,
        texts: OperatorTexts = NO_TEXTS,
        *,
        bundle_id: str | None = None,
        digest: str | None = None,
    ) -> None:
        self.bundle_id = bundle_id
        self.digest = digest
        self._texts = texts
        self.list_problems: Callable[[], Sequence[str]] = tuple
        """What does not work in this version although it can be used, one line each."""
        self.list_away: Callable[[], Sequence[str]] = tuple
        """The aliases of MCP servers whose tools are missing at the moment."""
        self.operations: BundleOperations | None = None
        """What programs can call without a turn."""
        self.replace(kit)

    def replace(self, kit: TurnKit) -> None:
        """Give another kit to the turns that begin from now on."""
        self._kit = kit
        self._adapt = lru_cache(MAX_KEPT_KITS)(self._build)

    @property
    def skills(self) -> Skills:
        """Those of the bundle."""
        return self._kit.skills

    def for_turn(
        self, principal: Principal, chosen: tuple[str, ...] | None = None, project_skills: tuple[SkillLine, ...] = ()
    ) -> TurnKit:
        """The kit of a turn of this person. `chosen` are the turn's tools among the selectable ones; None for all."""
        kit = self._adapt(self._texts.find(principal), chosen, project_skills)
        return kit.note_away(tuple(self.list_away()))

    def _build(self, text: str, chosen: tuple[str, ...] | None, project_skills: tuple[SkillLine, ...]) -> TurnKit:
        kit = self._kit.instruct("\n\n".join(filter(None, (text, self._kit.instructions))))
        kit = kit.describe_skills(project_skills)
        return kit if chosen is None else kit.offer(chosen)


class TurnKits(Protocol):
    """The kits of a worker's bundles."""

    @property
    def base(self) -> BundleKit:
        """Without anything of a bundle: for turns that are only to be ended."""
        ...

    def use(self, bundle_id: str | None, digest: str | None) -> AbstractAsyncContextManager[BundleKit]:
        """See BundleLibrary."""
        ...


@dataclass(frozen=True, slots=True)
class LoopDependencies:
    """What the loops of all turns share apart from their kits. `stragglers` owns calls that ignore a cancellation."""

    objects: Objects
    attachments: AttachmentReader
    stragglers: Stragglers
    next_call_id: Callable[[], CallId]
    next_turn_id: Callable[[], TurnId]
    failpoints: Failpoints
    redactor: Redactor
    model_retries: ModelRetryLimits
    tracing: Tracing = NO_TRACING
    monotonic: Callable[[], float] = time.monotonic

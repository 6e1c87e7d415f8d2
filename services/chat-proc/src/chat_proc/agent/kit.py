"""What a turn runs with: its models, tools, prompts and limits, chosen for each turn."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from chat_proc.agent.prompt.system import build_codec
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.tool import ToolRegistry
from chat_proc.channels.codec import Codec
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.memory.hotset import Hotset
from chat_proc.models.retry import ModelRetryLimits
from chat_proc.models.roles import narrow_traits
from chat_proc.timeline.compaction.cut import ContextLimits
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.cancellation import Stragglers
from everturn.core.failpoints import Failpoints
from everturn.core.ids import CallId, TurnId
from everturn.core.logging import Redactor
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.execution.messages import RunLimits
from everturn.files.objects import Objects
from everturn.models.port import LanguageModel, ModelTraits
from everturn.models.tokens import LearnedRatios
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
    hinted: Mapping[str, "TurnKit"] = field(default_factory=lambda: {})
    """The kits of steps that a plan gives to another model, by the role of that model."""
    title_model: LanguageModel | None = None
    """Without one, a title is the beginning of the first message."""
    title_prompt: str = ""
    run: RunLimits | None = None
    """The limits of one program; None if none can run."""
    history: WorkspaceHistory | None = None
    """Knows the files of earlier turns; without it ANNOUNCE lists only this turn's."""
    hotset: Hotset | None = None
    """None if memories of persons are switched off."""
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
        catalog, decisions = self.catalog.without(tool_ids), self.decisions
        if decisions.fanout is not None:
            strategies = {spec.tool_id: spec.strategy for spec in catalog.specs}
            decisions = replace(decisions, fanout=replace(decisions.fanout, strategies=strategies))
        codec = build_codec(self.codec.name, catalog.specs, decisions.max_actions)
        native = None if self.native is None else build_codec("native", catalog.specs)
        return replace(self, catalog=catalog, decisions=decisions, codec=codec, native=native)

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


class Kits:
    """The kits of a worker: one for each bundle that the operator configured, and one for all other turns."""

    def __init__(self, default: TurnKit, of_bundle: Mapping[str, TurnKit] | None = None) -> None:
        self._default = default
        self._of_bundle = of_bundle or {}
        self._offer = lru_cache(MAX_KEPT_KITS)(self._build_offering)

    def for_turn(self, bundle_id: str | None, chosen: tuple[str, ...] | None = None) -> TurnKit:
        """The kit of a turn whose request names this bundle, or none. `chosen` are the turn's tools among the
        selectable ones; None for all."""
        known = bundle_id if bundle_id in self._of_bundle else None
        return self._of_bundle.get(known or "", self._default) if chosen is None else self._offer(known, chosen)

    def _build_offering(self, bundle_id: str | None, chosen: tuple[str, ...]) -> TurnKit:
        return self.for_turn(bundle_id).offer(chosen)


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

"""What a turn runs with: its models, tools, prompts and limits, chosen for each turn."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from chat_proc.agent.approving import DEFAULT_TIMEOUT_S
from chat_proc.agent.limits import TurnLimits
from chat_proc.agent.prompt.system import build_system_prompt, load_topic
from chat_proc.catalog.call_policy import CallPolicy
from chat_proc.catalog.tool import ToolRegistry, ToolSpec
from chat_proc.channels.actions import FanoutRules
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.memory.hotset import Hotset
from chat_proc.models.estimate import LearnedRatios
from chat_proc.models.retry import ModelRetryLimits, RetryingModel
from chat_proc.models.roles import DECISION, SUMMARY, TITLE, ModelRoles, narrow_traits
from chat_proc.settings import MIN_CONTEXT_TOKENS, OperatorConfig, WorkerSettings
from chat_proc.timeline.compaction.cut import ContextLimits, build_context_limits
from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.cancellation import Stragglers
from everturn.core.failpoints import Failpoints
from everturn.core.ids import CallId, TurnId
from everturn.core.logging import Redactor
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.execution.messages import RunLimits
from everturn.files.objects import Objects
from everturn.models.port import LanguageModel, ModelTraits

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TurnKit:
    """What one turn runs with. Kits are shared by turns, so nothing in them belongs to one turn."""

    model: LanguageModel
    """Decides in each round, and writes the closing answer."""
    catalog: ToolRegistry
    policy: CallPolicy
    system_prompt: str
    closing_prompt: str
    code: str
    """How programs run here, or why they can't, in words for the model."""
    context: ContextLimits
    limits: TurnLimits = field(default_factory=TurnLimits)
    decisions: DecisionLimits = field(default_factory=DecisionLimits)
    fallback: LanguageModel | None = None
    """Decides if the deciding model has failed."""
    summary_model: LanguageModel | None = None
    """Without one, summaries are written by rules."""
    title_model: LanguageModel | None = None
    """Without one, a title is the beginning of the first message."""
    title_prompt: str = ""
    run: RunLimits | None = None
    """The limits of one program; None if none can run."""
    history: WorkspaceHistory | None = None
    """Knows the files of earlier turns; without it ANNOUNCE lists only this turn's."""
    hotset: Hotset | None = None
    """None if memories of persons are switched off."""
    approval_timeout_s: float = DEFAULT_TIMEOUT_S
    ratios: LearnedRatios = field(default_factory=LearnedRatios)

    @property
    def traits(self) -> ModelTraits:
        """What both deciding models can do: a request must suit both."""
        return narrow_traits(self.model, self.fallback)


class Kits:
    """The kits of a worker. Turns of a bundle have the number of rounds that the operator configured for it."""

    def __init__(self, default: TurnKit, rounds_of_bundle: Mapping[str, int] | None = None) -> None:
        self._default = default
        self._of_bundle = {
            bundle_id: replace(default, limits=replace(default.limits, rounds=rounds))
            for bundle_id, rounds in (rounds_of_bundle or {}).items()
        }

    def for_turn(self, bundle_id: str | None) -> TurnKit:
        """The kit of a turn whose request names this bundle, or none."""
        return self._of_bundle.get(bundle_id or "", self._default)


@dataclass(frozen=True, slots=True)
class LoopDependencies:
    """What the loops of all turns share apart from their kits. `stragglers` owns calls that ignore a cancellation."""

    objects: Objects
    stragglers: Stragglers
    next_call_id: Callable[[], CallId]
    next_turn_id: Callable[[], TurnId]
    failpoints: Failpoints
    redactor: Redactor
    tracing: Tracing = NO_TRACING
    monotonic: Callable[[], float] = time.monotonic
    model_retries: ModelRetryLimits = field(default_factory=ModelRetryLimits)


def build_kits(
    settings: WorkerSettings,
    config: OperatorConfig,
    models: ModelRoles,
    policy: CallPolicy,
    *,
    catalog: ToolRegistry,
    code: str,
    history: WorkspaceHistory,
    hotset: Hotset | None,
) -> Kits:
    """The kits that the operator's settings describe."""
    model, fallback = models.model(DECISION), models.fallback
    if fallback is not None and isinstance(model, RetryingModel):
        model = model.before_fallback()
    decisions = build_decision_limits(settings, catalog.specs)
    rounds = {bundle: config.max_iterations(bundle, settings.max_iterations) for bundle in config.bundles}
    kit = TurnKit(
        model=model,
        fallback=fallback,
        summary_model=models.try_model(SUMMARY),
        title_model=models.try_model(TITLE),
        title_prompt=load_topic("title"),
        catalog=catalog,
        policy=policy,
        system_prompt=build_system_prompt(catalog.specs, decisions.max_actions),
        closing_prompt=load_topic("closing"),
        code=code,
        run=RunLimits() if decisions.code_tools else None,
        history=history,
        hotset=hotset,
        context=build_context(settings, narrow_traits(models.model(DECISION), fallback)),
        limits=build_turn_limits(settings, config),
        decisions=decisions,
        approval_timeout_s=settings.approval_timeout_s,
    )
    return Kits(kit, rounds)


def build_turn_limits(settings: WorkerSettings, config: OperatorConfig) -> TurnLimits:
    """The limits of a turn that names no bundle with limits of its own."""
    return TurnLimits(
        rounds=config.max_iterations(None, settings.max_iterations),
        wall_time_s=settings.turn_wall_time_s,
        tokens=settings.turn_tokens,
        cost_usd=settings.turn_cost_usd,
        max_output_tokens=settings.max_output_tokens,
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


def build_context(settings: WorkerSettings, traits: ModelTraits) -> ContextLimits:
    """The bounds of a request's length for the deciding models."""
    limits = build_context_limits(
        settings.context_max_tokens, context_tokens=traits.context_tokens, max_output_tokens=settings.max_output_tokens
    )
    if limits.max_tokens < MIN_CONTEXT_TOKENS:
        # A setting this small is rejected; a model this small may be all the operator has, so it is only logged.
        _log.warning(
            "The model has a small context", model=traits.name, tokens=limits.max_tokens, enough=MIN_CONTEXT_TOKENS
        )
    return limits

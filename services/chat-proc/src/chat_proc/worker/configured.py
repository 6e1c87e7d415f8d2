"""What the operator's settings say about turns and replies, as the loop wants it."""

import math
from collections.abc import Sequence

from chat_proc.agent.limits import TurnLimits
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.fanout.rules import FanoutRules
from chat_proc.settings import OperatorConfig, WorkerSettings
from chat_proc.worker.presence import PresenceTask
from everturn.model.leases import ClaimBounds
from everturn.ports.tool import ToolSpec


def count_extra_slots(settings: WorkerSettings) -> int:
    """The extra slots of this worker."""
    return settings.worker_slots if settings.worker_extra_slots is None else settings.worker_extra_slots


def build_claim_bounds(settings: WorkerSettings, presence: PresenceTask) -> ClaimBounds:
    """The bounds of running turns for the workers that are there now."""
    slots, extra = presence.slots
    tenant_max = max(1, math.ceil(settings.tenant_running_share * slots))
    return ClaimBounds(settings.user_running_max, tenant_max, slots, extra)


def build_limits(settings: WorkerSettings, config: OperatorConfig) -> TurnLimits:
    """The caps of a turn, with the rounds of the bundles that have their own."""
    otherwise = settings.max_iterations
    return TurnLimits(
        rounds=config.max_iterations(None, otherwise),
        rounds_of_bundle={bundle_id: config.max_iterations(bundle_id, otherwise) for bundle_id in config.bundles},
        wall_time_s=settings.turn_wall_time_s,
        tokens=settings.turn_tokens,
        cost_usd=settings.turn_cost_usd,
        max_output_tokens=settings.max_output_tokens,
    )


def build_decision_limits(settings: WorkerSettings, tools: Sequence[ToolSpec]) -> DecisionLimits:
    """What a reply may hold, by the agent's version and by the tools there are."""
    code_tools = frozenset(spec.tool_id for spec in tools if spec.takes_code)
    fanout = FanoutRules({spec.tool_id: spec.strategy for spec in tools}, code_tools)
    return DecisionLimits(
        code_tools=code_tools,
        one_thinking=settings.agent_version == "v2",
        fanout=fanout if settings.multi_action == "safe_fanout" else None,
    )

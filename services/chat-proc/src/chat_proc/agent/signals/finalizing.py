"""The last rounds of a turn after a steer with words: what may still be done in them. Pure."""

from collections.abc import Iterable

from chat_proc.agent.check import Repair, UseTool, Verdict
from everturn.ports.tool import ToolSpec

FINALIZE_TOOLS = ("react.write", "react.patch", "react.plan", "react.hide")
"""What brings work into order; everything else would begin new work."""


def finalize_tools(offered: Iterable[ToolSpec]) -> tuple[str, ...]:
    """Those of them that this turn has."""
    names = {spec.tool_id for spec in offered}
    return tuple(name for name in FINALIZE_TOOLS if name in names)


def check_finalizing(verdict: Verdict, allowed: tuple[str, ...]) -> Verdict:
    """The verdict on a decision of such a round: a tool that begins new work becomes a notice that names the others."""
    if not isinstance(verdict, UseTool) or verdict.spec.tool_id in allowed:
        return verdict
    return Repair(
        "not_while_finalizing",
        f"{verdict.spec.tool_id} was not called: the person has steered the turn, and it is only to be finished. "
        f"Allowed now: {', '.join(allowed) or 'no tool'}. Complete along the lines of the steer.",
    )

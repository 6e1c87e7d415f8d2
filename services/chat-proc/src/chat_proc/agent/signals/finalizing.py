"""The last rounds of a turn after a steer with words: what may still be done in them. Pure."""

from collections.abc import Iterable
from dataclasses import replace

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
    if isinstance(verdict, Repair):
        return verdict
    late = [use for use in verdict.calls if use.spec.tool_id not in allowed]
    refused = [_refuse(use, allowed) for use in late]
    items = tuple(item for item in verdict.items if item not in late)
    if not items and refused:
        return refused[0]
    return replace(verdict, items=items, refused=(*verdict.refused, *refused))


def _refuse(use: UseTool, allowed: tuple[str, ...]) -> Repair:
    return Repair(
        "not_while_finalizing",
        f"{use.spec.tool_id} was not called: the person has steered the turn, and it is only to be finished. "
        f"Allowed now: {', '.join(allowed) or 'no tool'}. Complete along the lines of the steer.",
    )

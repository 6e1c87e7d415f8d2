"""Reads a reply whose actions are not in the form of its codec: in channels, or as JSON in its text. Models write such
replies if they imitate an earlier turn under another codec, or what they learned."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from chat_proc.channels.actions import Decision
from chat_proc.channels.decision_problems import MAX_CALLS, DecisionLimits, build_calls_problem
from chat_proc.channels.decision_stream import DecisionPiece, DecisionStream
from everturn.models.port import FinishReason
from everturn.timeline.sources import Source


def read_other_form(
    text: str,
    names: Mapping[str, str],
    sources: Iterable[Source],
    limits: DecisionLimits,
    reason: FinishReason,
    *,
    interrupted: bool = False,
    ignores_calls: bool = False,
) -> tuple[list[DecisionPiece], Decision] | None:
    """The pieces of a whole reply, and its decision; None if it has neither an action nor an answer.

    All calls up to MAX_CALLS count, whatever a codec allows in one reply; without calls, the answer does.
    """
    limits = replace(limits, fanout=None, one_thinking=False, stops_early=False)
    stream = DecisionStream(names=names, sources=sources, limits=limits)
    pieces = stream.feed(text)
    last, decision = stream.finish(reason, interrupted=interrupted)
    if any(problem.kind != "two_actions" for problem in decision.fatal_problems):
        return None
    # As in channels, an answer that was shown ends the turn; otherwise calls come first.
    takes_calls = decision.answer is None and not ignores_calls
    indexes = [index for index, action in enumerate(decision.actions) if (action.tool_call is not None) == takes_calls]
    if not indexes:
        return None
    refused, indexes = len(indexes) - MAX_CALLS, indexes[:MAX_CALLS]
    programs = [
        replace(program, for_action=indexes.index(program.for_action))
        for program in decision.programs
        if program.for_action in indexes
    ]
    decision = replace(
        decision,
        actions=tuple(decision.actions[index] for index in indexes),
        programs=tuple(programs),
        outside="",
        problems=(build_calls_problem(refused),) if refused > 0 else (),
    )
    return [*pieces, *last], decision

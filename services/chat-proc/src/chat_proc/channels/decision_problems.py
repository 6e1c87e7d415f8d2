"""What can be wrong with a reply as a whole, and the sentences that tell the model how to repair it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chat_proc.channels.actions import ActionRefusal
from everturn.model.llm.decisions import Action, Problem, ProblemKind, Program


@dataclass(frozen=True, slots=True)
class DecisionLimits:
    """Caps of one reply in characters, how many actions it may hold, and which tools take their program from `code`."""

    max_reply_chars: int = 400_000
    max_thinking_chars: int = 60_000
    max_actions: int = 1
    code_tools: frozenset[str] = frozenset({"run_code", "exec_tools.execute_code_python"})


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """What was read, as far as the rules of a whole reply need it. `readings` are the action channels in order."""

    raw: str
    outside: str
    any_channel: bool
    readings: Sequence[Action | ActionRefusal]
    programs: Sequence[Program]
    code_unclosed: bool
    summary: str | None
    reply_capped: bool
    thinking_capped: bool


def find_problems(facts: ReplyFacts, limits: DecisionLimits) -> tuple[Problem, ...]:
    """All problems of a reply, those of single actions included, the ones that explain the others first."""
    return (
        *_problems_of_the_reply(facts, limits),
        *_problems_of_actions(facts, limits),
        *_problems_of_programs(facts, limits),
        *_problems_of_the_summary(facts),
    )


def _problems_of_the_reply(facts: ReplyFacts, limits: DecisionLimits) -> Iterator[Problem]:
    if facts.reply_capped:
        yield Problem(
            "reply_too_long",
            f"The reply was cut after {limits.max_reply_chars} characters. Write less in one round.",
        )
    if facts.thinking_capped:
        yield _remark("thinking_too_long", f"Keep the thinking channel under {limits.max_thinking_chars} characters.")
    if not facts.raw.strip():
        yield Problem("empty_reply", "The reply was empty. Write a thinking channel and an action channel.")
    elif not facts.any_channel:
        yield Problem(
            "no_channel",
            "The reply has no channel. Put everything into channels: <channel:thinking>...</channel:thinking>, "
            'then <channel:action>{"action": ...}</channel:action>.',
        )
    elif facts.outside.strip():
        yield _remark("text_outside_channels", "Text outside the channels was dropped. Write inside channels only.")


def _problems_of_actions(facts: ReplyFacts, limits: DecisionLimits) -> Iterator[Problem]:
    if facts.any_channel and not facts.readings:
        yield Problem("no_action", 'The reply has no action. Write <channel:action>{"action": ...}</channel:action>.')
    for instance, reading in enumerate(facts.readings):
        if isinstance(reading, ActionRefusal):
            yield Problem(reading.kind, reading.sentence, action_instance=instance)
    if len(facts.readings) > limits.max_actions:
        allowed = "one action" if limits.max_actions == 1 else f"{limits.max_actions} actions"
        yield Problem(
            "two_actions",
            f"The reply has {len(facts.readings)} actions, but only {allowed} a reply may be written. "
            "Write the first now and the next after you have seen its result.",
            action_instance=limits.max_actions,
        )


def _problems_of_programs(facts: ReplyFacts, limits: DecisionLimits) -> Iterator[Problem]:
    if facts.code_unclosed:
        yield Problem("unclosed_code", "The code channel has no closer, so the program may be cut. Write both again.")
    if len(_actions(facts)) < len(facts.readings):
        return
    calling = {index for index, action in enumerate(_actions(facts)) if _takes_program(action, limits)}
    served = {program.for_action for program in facts.programs}
    if len(facts.programs) > len(served) or not served <= calling:
        yield Problem(
            "code_without_call",
            "A code channel is read only right after an action that calls a tool that runs it "
            f"({', '.join(sorted(limits.code_tools))}), one program for each call.",
        )
    if not calling <= served:
        yield Problem(
            "call_without_code",
            "The call to run a program has no program. Write it in a code channel right after the action.",
        )


def _problems_of_the_summary(facts: ReplyFacts) -> Iterator[Problem]:
    if facts.summary and not any(action.action != "call_tool" for action in _actions(facts)):
        yield _remark("summary_without_final", "The summary was dropped. Write it only with the final action.")


def _actions(facts: ReplyFacts) -> list[Action]:
    return [reading for reading in facts.readings if isinstance(reading, Action)]


def _takes_program(action: Action, limits: DecisionLimits) -> bool:
    return action.tool_call is not None and action.tool_call.tool_id in limits.code_tools


def _remark(kind: ProblemKind, sentence: str) -> Problem:
    return Problem(kind, sentence, fatal=False)

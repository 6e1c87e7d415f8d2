"""The possible problems of a whole reply, which of its actions run, and the sentences that explain the fix to the
model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from chat_proc.channels.actions import (
    Action,
    ActionRefusal,
    FanoutRules,
    Problem,
    ProblemKind,
    Program,
    ToolCall,
    claim,
)
from everturn.models.port import FinishReason
from everturn.timeline.turns import CutReason

TOO_LONG_CODES: frozenset[ProblemKind] = frozenset({"cut_by_length", "reply_too_long"})
"""The reply ended at the provider's token limit or at our character limit."""
MAX_CALLS = 32
"""Limit for the calls of one reply that are not actions in channels; further ones are not run, and the model learns
it."""

_NO_CHANNEL = Problem(
    "no_channel",
    "The reply has no channel. Put everything into channels: <channel:thinking>...</channel:thinking>, "
    'then <channel:action>{"action": ...}</channel:action>.',
)

_ANSWER_WITH_CALL = Problem(
    "answer_with_call", "An answer next to a tool call was dropped. Answer in a later round.", fatal=False
)
_AFTER_ANSWER = Problem(
    "two_actions",
    "The reply has more than one action. It begins with an answer, so the others were not run.",
    fatal=False,
    action_instance=1,
)


@dataclass(frozen=True, slots=True)
class DecisionLimits:
    """Limits of one reply in characters, and the rules of its actions: one, or several by the rules of `fanout`.

    `code_tools` read their program from `code`. `one_thinking` requires exactly one thinking channel. A reply that can
    only be refused is read to its end unless `stops_early` is set.
    """

    max_reply_chars: int = 400_000
    max_thinking_chars: int = 60_000
    max_outside_chars: int = 20_000
    code_tools: frozenset[str] = frozenset({"run_code", "exec_tools.execute_code_python"})
    one_thinking: bool = False
    stops_early: bool = True
    fanout: FanoutRules | None = None

    @property
    def max_actions(self) -> int:
        return self.fanout.max_actions if self.fanout else 1


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """The parsed facts that the rules of a whole reply need. `readings` are the action channels in order."""

    raw: str
    outside: str
    any_channel: bool
    readings: Sequence[Action | ActionRefusal]
    programs: Sequence[Program]
    summary: str | None
    reply_capped: bool = False
    outside_capped: bool = False
    thinking_channels: int = 1
    has_answer_channel: bool = False
    finish: FinishReason = "stop"


def explain_cut(stopped_by: CutReason | None, limits: DecisionLimits) -> Problem | None:
    """The problem of a reply that lacks something because it has ended too early."""
    match stopped_by:
        case "length":
            sentence = "The reply was cut off at the token limit for one reply. Write less in one round."
            return Problem("cut_by_length", sentence)
        case "size_limit":
            sentence = f"The reply was cut off after {limits.max_reply_chars} characters. Write less in one round."
            return Problem("reply_too_long", sentence)
        case "refusal" | "content_filter":
            return Problem(
                "refused",
                "Your reply was a refusal, or a content filter blocked it. Do what you can, and tell the user what you "
                "can't do.",
            )
        case _:
            return None


def explain_nothing(
    raw: str, stopped_by: CutReason | None, limits: DecisionLimits, *, unusable: Problem, wanted: str
) -> Problem:
    """The problem of a reply that has neither an action nor an answer: it is `unusable`, unless it was cut off or is
    empty. `wanted` says what to write instead of an empty one."""
    empty = Problem("empty_reply", f"The reply was empty. {wanted}")
    return explain_cut(stopped_by, limits) or (unusable if raw.strip() else empty)


def find_problems(facts: ReplyFacts, limits: DecisionLimits) -> tuple[Problem, ...]:
    """All problems of a reply with one action; causes first."""
    return (
        *problems_around(facts, limits),
        *_problems_of_actions(facts),
        *_problems_of_programs(facts, limits),
    )


def problems_around(facts: ReplyFacts, limits: DecisionLimits) -> tuple[Problem, ...]:
    """The problems of a reply except those of single actions and programs."""
    return (
        *_problems_of_the_finish(facts, limits),
        *_problems_of_thinking(facts, limits),
        *_problems_of_the_reply(facts, limits),
        *_problems_of_the_rest(facts),
    )


def _problems_of_the_finish(facts: ReplyFacts, limits: DecisionLimits) -> Iterator[Problem]:
    """Why the provider ended the reply, if that explains what is missing."""
    is_whole = _actions(facts) and all(program.complete for program in facts.programs)
    if not is_whole and facts.finish != "stop" and (problem := explain_cut(facts.finish, limits)):
        yield problem


def _problems_of_the_reply(facts: ReplyFacts, limits: DecisionLimits) -> Iterator[Problem]:
    if facts.reply_capped and (problem := explain_cut("size_limit", limits)):
        yield problem
    if facts.outside_capped:
        yield Problem(
            "reply_too_long",
            f"The reply was cut off: more than {limits.max_outside_chars} of its characters were outside channels. "
            "Write inside channels only.",
        )
    if not facts.any_channel:
        wanted = "Write a thinking channel and an action channel."
        yield explain_nothing(facts.raw, None, limits, unusable=_NO_CHANNEL, wanted=wanted)
    elif facts.outside.strip():
        yield _remark("text_outside_channels", "Text outside the channels was dropped. Write inside channels only.")
    stopped_in_thinking = limits.one_thinking and facts.thinking_channels > 1
    if facts.any_channel and not facts.readings and not stopped_in_thinking:
        yield Problem("no_action", 'The reply has no action. Write <channel:action>{"action": ...}</channel:action>.')


def _problems_of_thinking(facts: ReplyFacts, limits: DecisionLimits) -> Iterator[Problem]:
    if limits.one_thinking and facts.any_channel and facts.thinking_channels != 1:
        yield Problem("thinking_channels", "Write exactly one thinking channel, before the action.")


def _problems_of_actions(facts: ReplyFacts) -> Iterator[Problem]:
    if not facts.readings:
        return
    # Reading may have stopped at the first refusal, so later actions are not reported.
    if isinstance(first := facts.readings[0], ActionRefusal):
        yield Problem(first.kind, first.sentence, action_instance=0, missing_tool=first.missing_tool)
    elif len(facts.readings) > 1:
        yield Problem(
            "two_actions",
            "The reply has more than one action, but a reply may have only one. "
            "Write the first now and the next after you have seen its result.",
            action_instance=1,
        )


def _problems_of_programs(facts: ReplyFacts, limits: DecisionLimits) -> Iterator[Problem]:
    if any(not program.complete for program in facts.programs):
        yield Problem(
            "unclosed_code",
            "The code channel is not closed, so the program may be cut off. Write action and program again.",
        )
    if len(_actions(facts)) < len(facts.readings) or len(facts.readings) > 1:
        return
    calling = {index for index, action in enumerate(_actions(facts)) if _takes_program(action, limits)}
    served = {program.for_action for program in facts.programs}
    if len(facts.programs) > len(served) or not served <= calling:
        yield Problem(
            "code_without_call",
            "Write a code channel only right after an action that calls a tool that runs programs "
            f"({', '.join(sorted(limits.code_tools))}), one program for each call.",
        )
    if not calling <= served:
        yield Problem(
            "call_without_code",
            "The call to run a program has no program. Write it in a code channel right after the action.",
        )


def _problems_of_the_rest(facts: ReplyFacts) -> Iterator[Problem]:
    calls = [action for action in _actions(facts) if action.tool_call is not None]
    if any(call.dropped_answer for call in calls) or (calls and facts.has_answer_channel):
        yield _ANSWER_WITH_CALL
    if facts.summary and not any(action.action != "call_tool" for action in _actions(facts)):
        yield _remark("summary_without_final", "The summary was dropped. Write it only with the final action.")


def _actions(facts: ReplyFacts) -> list[Action]:
    return [reading for reading in facts.readings if isinstance(reading, Action)]


def _takes_program(action: Action, limits: DecisionLimits) -> bool:
    return action.tool_call is not None and action.tool_call.tool_id in limits.code_tools


def _remark(kind: ProblemKind, sentence: str) -> Problem:
    return Problem(kind, sentence, fatal=False)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The actions of a reply that count, as indexes of its valid ones, and what the model learns about the others."""

    indexes: Sequence[int]
    problems: tuple[Problem, ...] = ()


def choose_actions(readings: Sequence[Action | ActionRefusal], *, ignores_calls: bool = False) -> Chosen:
    """The actions of a reply in a form that has no rules for several: its answer if that comes first, otherwise all its
    calls up to MAX_CALLS. An answer never comes with a call."""
    actions = [reading for reading in readings if isinstance(reading, Action)]
    answers = [index for index, action in enumerate(actions) if action.tool_call is None]
    calls = [index for index, action in enumerate(actions) if action.tool_call is not None]
    if ignores_calls:
        return Chosen(answers[:1])
    if answers[:1] == [0]:
        return Chosen(answers[:1], (_AFTER_ANSWER,) if len(readings) > 1 else ())
    problems = [
        Problem(reading.kind, reading.sentence, False, instance, reading.missing_tool)
        for instance, reading in enumerate(readings)
        if isinstance(reading, ActionRefusal)
    ]
    if answers or any(action.dropped_answer for action in actions):
        problems.append(_ANSWER_WITH_CALL)
    if len(calls) > MAX_CALLS:
        problems.append(build_calls_problem(len(calls) - MAX_CALLS))
    return Chosen(calls[:MAX_CALLS], tuple(problems))


def build_calls_problem(refused: int) -> Problem:
    """The problem of a reply with more than MAX_CALLS calls."""
    sentence = f"A reply may have at most {MAX_CALLS} calls; {refused} more were not made."
    return Problem("too_many_actions", sentence, fatal=False, action_instance=MAX_CALLS)


@dataclass(frozen=True, slots=True)
class Sorted:
    """The actions that run, with their programs, in order, and all problems of the reply."""

    actions: tuple[Action, ...]
    programs: tuple[Program, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """One action channel. `programs` are the code channels between it and the next action."""

    instance: int
    reading: Action | ActionRefusal
    programs: Sequence[Program]


def sort_actions(facts: ReplyFacts, limits: DecisionLimits, rules: FanoutRules) -> Sorted:
    """Keep every action that can run on its own; a reply with problems is usable if one action is left."""
    kept: list[Action] = []
    programs: list[Program] = []
    problems = list(problems_around(facts, limits))
    paths: set[str] = set()
    for item in _items(facts):
        refusal = _refuse(item, rules, paths) or _refuse_code_alone(item, facts, rules)
        if refusal is not None:
            problems.append(_build_refusal_problem(item.instance, refusal))
        elif isinstance(item.reading, Action):
            takes_code = _takes_code(item.reading, rules)
            programs += [Program(item.programs[0].text, len(kept))] if takes_code else []
            kept.append(item.reading)
            if item.programs and not takes_code:
                problems.append(_build_stray_code_problem(item.instance, rules))
    if any(program.for_action is None for program in facts.programs) and not _follows_refused(facts):
        problems.append(_build_stray_code_problem(None, rules))
    fatal = not kept
    return Sorted(tuple(kept), tuple(programs), tuple(_grade(problems, fatal=fatal)))


def _items(facts: ReplyFacts) -> Iterator[_Item]:
    index = 0
    for instance, reading in enumerate(facts.readings):
        if isinstance(reading, ActionRefusal):
            yield _Item(instance, reading, ())
            continue
        yield _Item(instance, reading, [program for program in facts.programs if program.for_action == index])
        index += 1


def _refuse(item: _Item, rules: FanoutRules, paths: set[str]) -> ActionRefusal | None:
    if isinstance(item.reading, ActionRefusal):
        return item.reading
    call = item.reading.tool_call
    if call is None:
        return None
    if call.tool_id in rules.code_tools:
        if len(item.programs) != 1:
            return ActionRefusal(
                "call_without_code", "The call runs one program. Write it in one code channel right after the action."
            )
        if not item.programs[0].complete:
            return ActionRefusal("unclosed_code", "The code channel is not closed, so the program may be cut off.")
    if rules.strategies.get(call.tool_id) == "exploitation":
        return next((refusal for path in _output_paths(call) if (refusal := claim(paths, path))), None)
    return None


def _refuse_code_alone(item: _Item, facts: ReplyFacts, rules: FanoutRules) -> ActionRefusal | None:
    """A program with the only call of a reply was meant for it, so a call that does not run programs is a mistake."""
    if len(facts.readings) > 1 or not item.programs or _takes_code(item.reading, rules):
        return None
    return ActionRefusal("code_without_call", f"Its tool does not run programs; {_code_tools(rules)} does.")


def _output_paths(call: ToolCall) -> Iterator[str]:
    """The paths that the call will write: `path`, or the `filepath` of each item of `contract`."""
    if isinstance(path := call.params.get("path"), str):
        yield path
    contract = call.params.get("contract")
    for item in cast("list[object]", contract) if isinstance(contract, list) else ():
        filepath = cast("Mapping[str, object]", item).get("filepath") if isinstance(item, dict) else None
        if isinstance(filepath, str):
            yield filepath


def _takes_code(reading: Action | ActionRefusal, rules: FanoutRules) -> bool:
    call = reading.tool_call if isinstance(reading, Action) else None
    return call is not None and call.tool_id in rules.code_tools


def _code_tools(rules: FanoutRules) -> str:
    return ", ".join(sorted(rules.code_tools)) or "no tool"


def _follows_refused(facts: ReplyFacts) -> bool:
    """Whether an action is refused: then its program is not reported separately."""
    return any(isinstance(reading, ActionRefusal) for reading in facts.readings)


def _build_refusal_problem(instance: int, refusal: ActionRefusal) -> Problem:
    sentence = f"Action {instance + 1} was not run. {refusal.sentence}"
    return Problem(refusal.kind, sentence, action_instance=instance, missing_tool=refusal.missing_tool)


def _build_stray_code_problem(instance: int | None, rules: FanoutRules) -> Problem:
    return Problem(
        "code_without_call",
        "A code channel was dropped because it does not follow a call that runs it; "
        f"{_code_tools(rules)} runs programs.",
        action_instance=instance,
    )


def _grade(problems: Sequence[Problem], *, fatal: bool) -> Iterator[Problem]:
    """Problems of single actions require another attempt only if no action is left."""
    for problem in problems:
        single = problem.action_instance is not None or problem.kind == "code_without_call"
        yield replace(problem, fatal=fatal) if single else problem

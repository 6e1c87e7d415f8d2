"""Sorts out a reply with several actions: which of them run, and what is said about the others. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from chat_proc.channels.actions import ActionRefusal
from chat_proc.channels.decision_problems import DecisionLimits, ReplyFacts, problems_around
from chat_proc.channels.fanout.rules import FanoutRules, claim
from everturn.model.llm.decisions import Action, Problem, Program, ToolCall


@dataclass(frozen=True, slots=True)
class Sorted:
    """The actions that run with their programs, in order, and every problem of the reply."""

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
    """Keep every action that can run by itself; a reply with problems but with one action left is usable."""
    kept: list[Action] = []
    programs: list[Program] = []
    problems = list(problems_around(facts, limits))
    paths: set[str] = set()
    for item in _items(facts):
        refusal = _refuse(item, rules, paths) or _refuse_code_alone(item, facts, rules)
        if refusal is not None:
            problems.append(_tell(item.instance, refusal))
        elif isinstance(item.reading, Action):
            takes_code = _takes_code(item.reading, rules)
            programs += [Program(item.programs[0].text, len(kept))] if takes_code else []
            kept.append(item.reading)
            if item.programs and not takes_code:
                problems.append(_tell_stray_code(item.instance, rules))
    if any(program.for_action is None for program in facts.programs) and not _follows_refused(facts):
        problems.append(_tell_stray_code(None, rules))
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
            return ActionRefusal("unclosed_code", "The code channel has no closer, so the program may be cut.")
    if rules.strategies.get(call.tool_id) == "exploitation":
        return next((refusal for path in _output_paths(call) if (refusal := claim(paths, path))), None)
    return None


def _refuse_code_alone(item: _Item, facts: ReplyFacts, rules: FanoutRules) -> ActionRefusal | None:
    """A program with the only call of a reply was meant for it; the call can't be what the model wants."""
    if len(facts.readings) > 1 or not item.programs or _takes_code(item.reading, rules):
        return None
    return ActionRefusal("code_without_call", f"Its tool runs no program; {_code_tools(rules)} does.")


def _output_paths(call: ToolCall) -> Iterator[str]:
    """What the call says it will write: `path`, or the `filepath` of each item of `contract`."""
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
    """A program of an action that is refused is not spoken of: it goes with it."""
    return any(isinstance(reading, ActionRefusal) for reading in facts.readings)


def _tell(instance: int, refusal: ActionRefusal) -> Problem:
    return Problem(refusal.kind, f"Action {instance + 1} was not run. {refusal.sentence}", action_instance=instance)


def _tell_stray_code(instance: int | None, rules: FanoutRules) -> Problem:
    return Problem(
        "code_without_call",
        f"A code channel that follows no action that runs it was dropped; {_code_tools(rules)} runs programs.",
        action_instance=instance,
    )


def _grade(problems: Sequence[Problem], *, fatal: bool) -> Iterator[Problem]:
    """Problems of single actions ask for another try only when no action is left."""
    for problem in problems:
        single = problem.action_instance is not None or problem.kind == "code_without_call"
        yield Problem(problem.kind, problem.sentence, fatal, problem.action_instance) if single else problem

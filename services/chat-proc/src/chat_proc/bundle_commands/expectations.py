"""Compares what has happened in a turn of a test with what is expected of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chat_proc.bundle_commands.cases import Case, CaseTurn, ExpectedCall
from chat_proc.bundles.manifest import Problem
from chat_proc.workspace.text_search import Pattern
from everturn.files.model import Artifact
from everturn.timeline.blocks import (
    ApprovalRequestBody,
    Block,
    CheckoutBody,
    CompletionBody,
    DurableStepBody,
    ExitBody,
    NoticeBody,
    ToolCallBody,
    ToolResultBody,
)

MAX_SHOWN_CHARS: Final = 300
_READS: Final = frozenset({"react.read", "react.pull"})
_PROBLEMS: Final = "urn:everturn:problem:"


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """What has happened in a turn. `files` are the contents of the files that it made, as text, by path; `unasked`
    counts replies that nobody asked for, `asked` those that were played, and `refused` requests beyond them."""

    blocks: Sequence[Block]
    prompt: str
    files: Mapping[str, str]
    asked: int
    unasked: int
    refused: int
    unanswered: Sequence[str] = ()
    """Tools whose calls wait for an approval that the test does not give."""


@dataclass(slots=True)
class _Call:
    """A call, with the text of its result. The arguments of one that was refused are not known (None); its result
    says why."""

    tool_id: str
    args: Mapping[str, Any] | None
    status: str = "none"
    text: str = ""
    artifacts: Sequence[Artifact] = field(default_factory=tuple[Artifact, ...])

    def __str__(self) -> str:
        if self.args is None:
            return f"{self.tool_id}(…)"
        args = ", ".join(f"{name}={value!r}" for name, value in self.args.items())
        return f"{self.tool_id}({_shorten(args, 120)})"


def find_failures(case: Case, number: int, played: PlayedTurn) -> list[Problem]:
    """Everything that is not as expected in turn `number`, which counts from 0."""
    return [
        case.explain(message.rstrip("."), "turn", number, *place)
        for place, message in _compare(case.content.turn[number], played)
    ]


def collect_artifacts(blocks: Sequence[Block]) -> dict[str, Artifact]:
    """The files that the turn of these blocks made, by path, such as `outputs/report.html`."""
    made: dict[str, Artifact] = {}
    for block in blocks:
        if isinstance(block.body, ToolResultBody | CheckoutBody | DurableStepBody):
            made |= {_path_of(artifact): artifact for artifact in block.body.artifacts}
    return made


def _path_of(artifact: Artifact) -> str:
    return artifact.path.removeprefix(f"{artifact.turn_id}/")


_Failures = Iterator[tuple[tuple[str, ...], str]]


def _compare(turn: CaseTurn, played: PlayedTurn) -> _Failures:
    expect = turn.expect
    calls = _collect_calls(played.blocks)
    yield from _compare_end(turn, played)
    answer = _find_answer(played.blocks)
    if expect.answer is not None and answer.strip() != expect.answer.strip():
        yield ("expect", "answer"), f"expected {_show(expect.answer)}, found {_show(answer)}"
    for text in expect.answer_contains:
        if text not in answer:
            yield ("expect", "answer_contains"), f"expected {_show(text)} in the answer, found {_show(answer)}"
    for pattern in expect.answer_matches:
        if Pattern(pattern).find(answer) is None:
            yield ("expect", "answer_matches"), f"expected a match of {_show(pattern)}, found {_show(answer)}"
    yield from _compare_calls(turn, calls)
    for path, texts in ((file.path, file.contains) for file in expect.files):
        if path not in played.files:
            yield ("expect", "files"), f"expected the file {path}, found {_list(played.files)}"
            continue
        for text in texts:
            if text not in played.files[path]:
                yield ("expect", "files"), f"expected {_show(text)} in {path}, found {_show(played.files[path])}"
    cited = _find_citations(played.blocks)
    for source in expect.sources:
        if source not in cited:
            yield ("expect", "sources"), f"expected the answer to cite {source}, found {_list(cited)}"
    read = [call for call in calls if call.tool_id in _READS and call.status == "ok"]
    for skill in expect.skills:
        if not any(f"sk:{skill.removeprefix('sk:')}" in str(call.args) for call in read):
            yield ("expect", "skills"), f"expected the skill {skill} to be read, found {_list(map(str, read))}"
    for path in expect.knowledge:
        ref = f"ks:{path.removeprefix('ks:')}"
        seen = [call for call in calls if call.status == "ok" and (ref in call.text or ref in str(call.args))]
        if not seen:
            found = [call for call in calls if "knowledge" in call.tool_id or "ks:" in str(call.args)]
            results = "; ".join(f"{call} returned {_show(call.text)}" for call in found) or "no search or read"
            yield ("expect", "knowledge"), f"expected {ref} to be found, found {results}"
    durable = [block.body for block in played.blocks if isinstance(block.body, DurableStepBody)]
    steps = [each.key for each in durable if (each.kind, each.state) == ("step", "done")]
    for key in expect.steps:
        if key not in steps:
            yield ("expect", "steps"), f"expected the step {key} to be done, found {_list(steps)}"
    asked = [block.body.tool_id for block in played.blocks if isinstance(block.body, ApprovalRequestBody)]
    for tool_id in expect.approvals:
        if tool_id not in asked:
            yield ("expect", "approvals"), f"expected a call of {tool_id} to need approval, found {_list(asked)}"
    for text in expect.prompt_contains:
        if text not in played.prompt:
            yield ("expect", "prompt_contains"), f"expected {_show(text)} in the system prompt, found no such text"


def _compare_end(turn: CaseTurn, played: PlayedTurn) -> _Failures:
    """How often the model was asked, and how the turn has ended."""
    expect = turn.expect
    for tool_id in played.unanswered:
        why = "waits for approval, but the turn doesn't say what the person answers: add approve = true, or false"
        yield ("user",), f"a call of {tool_id} {why}"
    if played.unanswered:
        return
    replies = _count(played.asked + played.unasked, "reply", "replies")
    if played.refused:
        yield ("model",), f"the model was asked again after {replies}: add what it replies then"
        return
    if played.unasked:
        yield ("model",), f"expected the model to be asked for {replies}, found that it was asked for {played.asked}"
    ends = [block.body for block in played.blocks if isinstance(block.body, ExitBody)]
    if not ends:
        yield ("user",), "the turn did not end"
        return
    problem, detail = "", ""
    if (error := ends[-1].error) is not None:
        problem = error.type.removeprefix(_PROBLEMS)
        detail = f" ({'. '.join(filter(None, (error.title, error.detail)))})"
    outcome = str(ends[-1].outcome) if ends[-1].outcome is not None else ""
    if expect.problem is not None:
        if problem != expect.problem:
            found = f"the problem {problem}{detail}" if problem else f"the outcome {outcome}"
            yield ("expect", "problem"), f"expected the problem {expect.problem}, found {found}"
    elif problem:
        yield ("expect", "outcome"), f"expected an answer, found the problem {problem}{detail}"
    elif not problem and outcome != (expect.outcome or "completed"):
        yield ("expect", "outcome"), f"expected the outcome {expect.outcome or 'completed'}, found {outcome}"


def _compare_calls(turn: CaseTurn, calls: Sequence[_Call]) -> _Failures:
    expect = turn.expect
    position = 0
    for expected in expect.calls:
        fitting = [index for index in range(position, len(calls)) if _fits(expected, calls[index])]
        if fitting:
            position = fitting[0] + 1
            continue
        yield ("expect", "calls"), _explain_call(expected, calls[position:], calls)
    for tool_id in expect.no_calls:
        if made := [call for call in calls if call.tool_id == tool_id]:
            yield ("expect", "no_calls"), f"expected no call of {tool_id}, found {made[0]}"
    for call in calls:
        is_expected = any(each.tool == call.tool_id and each.status == call.status for each in expect.calls)
        if call.status not in ("ok", "none") and not is_expected and turn.approve is not False:
            yield (
                ("expect", "calls"),
                (
                    f"{call} ended with the status {call.status}: {_show(call.text)}. If that is right, expect "
                    f'{{ tool = "{call.tool_id}", status = "{call.status}" }}'
                ),
            )


def _fits(expected: ExpectedCall, call: _Call) -> bool:
    return (
        call.tool_id == expected.tool
        and (call.args is None or all(item in call.args.items() for item in expected.args.items()))
        and all(text in call.text for text in expected.result_contains)
        and expected.status in (None, call.status)
    )


def _explain_call(expected: ExpectedCall, rest: Sequence[_Call], calls: Sequence[_Call]) -> str:
    """The first difference to the call that is nearest."""
    named = [call for call in rest if call.tool_id == expected.tool]
    if not named:
        is_earlier = any(call.tool_id == expected.tool for call in calls)
        when = " after the calls that are expected before it" if is_earlier else ""
        return f"expected a call of {expected.tool}{when}, found {_list(map(str, calls))}"
    with_args = [
        call for call in named if _fits(expected.model_copy(update={"result_contains": (), "status": None}), call)
    ]
    if not with_args:
        wanted = ", ".join(f"{name}={value!r}" for name, value in expected.args.items())
        return f"expected {expected.tool}({wanted}), found {_list(map(str, named))}"
    call = with_args[0]
    if expected.status not in (None, call.status):
        return f"expected {call} to end with {expected.status}, found {call.status}: {_show(call.text)}"
    missing = next(text for text in expected.result_contains if text not in call.text)
    return f"expected {_show(missing)} in the result of {call}, found {_show(call.text)}"


def _collect_calls(blocks: Sequence[Block]) -> list[_Call]:
    calls: dict[str, _Call] = {}
    for block in blocks:
        match block.body:
            case ToolCallBody(tool_id=tool_id, params=params):
                calls[block.call_id or block.ref] = _Call(tool_id, params)
            case ToolResultBody(status=status, text=text, artifacts=artifacts):
                if (call := calls.get(block.call_id or "")) is not None:
                    call.status, call.text, call.artifacts = status, text, artifacts
            case NoticeBody(refused_tool=str(tool_id), text=text):
                calls[block.ref] = _Call(tool_id, None, "error", text)
            case _:
                pass
    return list(calls.values())


def _find_answer(blocks: Sequence[Block]) -> str:
    """The last answer of the turn, as the person reads it."""
    answers = [block.body for block in blocks if isinstance(block.body, CompletionBody)]
    if not answers:
        return ""
    return answers[-1].text if answers[-1].shown is None else answers[-1].shown


def _find_citations(blocks: Sequence[Block]) -> list[str]:
    answers = [block.body for block in blocks if isinstance(block.body, CompletionBody)]
    return [citation.url for citation in answers[-1].citations] if answers else []


def _show(text: str) -> str:
    return repr(_shorten(text, MAX_SHOWN_CHARS))


def _shorten(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"


def _list(found: Iterator[str] | Sequence[str] | Mapping[str, str]) -> str:
    return _shorten(", ".join(found), 3 * MAX_SHOWN_CHARS) or "none"


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"

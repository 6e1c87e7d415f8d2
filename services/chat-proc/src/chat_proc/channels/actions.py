"""Parses one action, as text while it is written and as a checked `Action` at its end, and judges which actions may
share a reply."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from chat_proc.catalog.tool import Strategy
from chat_proc.channels.json_text import FieldPiece, JsonFieldReader, Path
from chat_proc.models.json_values import JsonFault, JsonRefusal, as_object, read_json
from everturn.timeline.turns import CutReason

ActionKind = Literal["call_tool", "complete", "exit"]

ProblemKind = Literal[
    # of the whole reply
    "empty_reply",
    "reply_too_long",
    "cut_by_length",
    "refused",
    "no_channel",
    "no_action",
    "two_actions",
    "text_outside_channels",
    "thinking_too_long",
    "thinking_channels",
    # of one action
    "not_json",
    "not_an_object",
    "two_objects",
    "text_after_object",
    "duplicate_key",
    "not_a_number",
    "number_too_large",
    "too_deep",
    "missing_field",
    "wrong_type",
    "unknown_action",
    "contradiction",
    "answer_with_call",
    # of an action among others
    "unknown_tool",
    "too_many_actions",
    "explore_then_exploit",
    "beside_unknown",
    "second_final",
    "final_after_work",
    "work_after_final",
    "second_program",
    "same_path",
    # of a program and of the summary
    "code_without_call",
    "call_without_code",
    "unclosed_code",
    "summary_without_final",
]

FINAL_KINDS = frozenset({"final_answer", "answer", "complete", "exit"})
CALL_KINDS = frozenset({"tool_call", "call_tool", "tool"})
"""What models write as the kind of a final action and of a call, in any form."""

ACTION_PATH: Path = ("action",)
NOTES_PATH: Path = ("notes",)
ANSWER_PATH: Path = ("final_answer",)
TOOL_PATH: Path = ("tool_call", "tool_id")
PARAMS_PATH: Path = ("tool_call", "params")
STREAMED_PATHS = frozenset({ACTION_PATH, NOTES_PATH, ANSWER_PATH, TOOL_PATH})

_SHAPE = (
    '{"action": "call_tool" | "complete" | "exit", "notes": "...", '
    '"tool_call": {"tool_id": "...", "params": {...}} | null, '
    '"final_answer": "..." | null, "suggested_followups": ["..."] | null}'
)

_JSON_SENTENCES: Mapping[JsonFault, str] = {
    "not_json": "The action is not valid JSON ({detail}). Write it again, as one JSON object in an action channel.",
    "two_objects": "One action channel contains one JSON object, but a second value follows: {detail} "
    "Open a new action channel for each action.",
    "text_after_object": "Text follows the JSON object of the action: {detail} "
    "Put nothing but the object in the channel.",
    "duplicate_key": 'The action has the key "{detail}" twice in one object. Write each key once.',
    "not_a_number": "The action contains {detail}, which is not a JSON number. Use a finite number or null.",
    "number_too_large": "The number {detail} in the action is too large. Write it as a string if its digits matter.",
    "too_deep": "The action is nested too deeply ({detail}). Reduce the nesting of its parameters.",
}

UNREADABLE: frozenset[ProblemKind] = frozenset(
    {"not_json", "duplicate_key", "not_a_number", "number_too_large", "too_deep"}
)
"""The object is not valid, so an answer that was read from it may be only a part of what the model meant."""
FORM_PROBLEMS: frozenset[ProblemKind] = frozenset({"not_an_object", "missing_field", "wrong_type", "unknown_action"})
"""The text is JSON, but not an action in the form of a channel: it may be one in another form."""

MAX_ACTIONS = 4
"""Maximum per reply. They can't depend on each other's results, so more of them would be guesses."""
_TURN_FOLDER = re.compile(r"(?:fi:)?(?:turn_[^/.]*[./])?")
_FOLDERS = ("files/", "outputs/")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool and its parameters as the model wrote them: JSON values, not yet checked against the tool."""

    tool_id: str
    params: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `call_tool` has a tool call and no answer; `complete` and `exit` have an answer and no tool call.

    `dropped_answer`: the model wrote an answer in addition to its call.
    """

    action: ActionKind
    notes: str = ""
    tool_call: ToolCall | None = None
    final_answer: str | None = None
    suggested_followups: tuple[str, ...] | None = None
    dropped_answer: bool = False

    @property
    def head(self) -> "ActionHead":
        """What it is judged by."""
        return ActionHead(None if self.tool_call is None else self.tool_call.tool_id)


@dataclass(frozen=True, slots=True)
class Program:
    """Text of one code channel, without a surrounding code fence, and the index in `Decision.actions` that it follows.

    `complete`: the channel had a closing tag.
    """

    text: str
    for_action: int | None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """The streamed part of an answer: as the model wrote it, as it was shown, and the sources cited in it.

    `complete` is false if the reply broke off inside it.
    """

    raw: str
    shown: str
    used_sids: tuple[int, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a reply. `sentence` explains to the model how to fix it; `action_instance` says where.

    A problem that is not `fatal` leaves the rest of the decision usable.
    """

    kind: ProblemKind
    sentence: str
    fatal: bool = True
    action_instance: int | None = None
    missing_tool: str | None = None
    """The name, in ASCII, of the tool that was called, if there is no such tool."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One parsed reply. `actions` are those that can run, in order; `raw` is the part of the reply that was read."""

    raw: str
    actions: tuple[Action, ...] = ()
    programs: tuple[Program, ...] = ()
    summary: str | None = None
    answer: StreamedAnswer | None = None
    outside: str = ""
    beside: str = ""
    """Text next to calls, for codecs in which calls have no notes. It may mark steps of a plan."""
    problems: tuple[Problem, ...] = ()
    stopped_by: CutReason | None = None
    """What ended the reply before the model had finished it, if known."""

    @property
    def cut_reason(self) -> CutReason | None:
        """Why the streamed answer stops before its end; None if it is complete, or nothing was streamed."""
        if self.answer is None or self.answer.complete:
            return None
        return self.stopped_by or "incomplete"

    @property
    def fatal_problems(self) -> tuple[Problem, ...]:
        """The problems that require another attempt."""
        return tuple(problem for problem in self.problems if problem.fatal)


@dataclass(frozen=True, slots=True)
class ActionRefusal:
    """Why a text is not a valid action; `sentence` is for the model, and `missing_tool` as in Problem."""

    kind: ProblemKind
    sentence: str
    missing_tool: str | None = None


class ActionReader:
    """Feed it the text of one action channel; `finish` returns the last field pieces and the action.

    Streams the strings at `STREAMED_PATHS` and all strings directly in `tool_call.params`.
    """

    def __init__(self) -> None:
        self._fields = JsonFieldReader(_is_streamed, strings_only=True)
        self._written: list[str] = []

    def feed(self, text: str) -> list[FieldPiece]:
        """Return what `text` adds to the streamed fields."""
        self._written.append(text)
        return self._fields.feed(text)

    def finish(self) -> tuple[list[FieldPiece], Action | ActionRefusal]:
        """End the text."""
        return self._fields.finish(), read_action(self.text)

    @property
    def text(self) -> str:
        """What was fed so far."""
        return "".join(self._written)

    @property
    def is_over(self) -> bool:
        """Whether the object has ended, or is found to be invalid."""
        return self._fields.is_over


def read_action(text: str) -> Action | ActionRefusal:
    """Parse an action of any size and nesting; no input raises an exception."""
    read = read_json(text)
    if isinstance(read, JsonRefusal):
        return ActionRefusal(read.fault, _JSON_SENTENCES[read.fault].format(detail=read.detail))
    fields = as_object(read.value)
    if fields is None:
        return ActionRefusal("not_an_object", f"An action is one JSON object of this form: {_SHAPE}")
    try:
        return _build_action(fields)
    except _Refused as refused:
        return refused.refusal


def try_build_action(fields: Mapping[str, object]) -> Action | None:
    """The action that a parsed object is; None if it is not exactly in the form of a channel's."""
    try:
        return _build_action(fields)
    except _Refused:
        return None


class _Refused(Exception):
    """A field of the action is not as it must be."""

    def __init__(self, kind: ProblemKind, sentence: str) -> None:
        super().__init__(sentence)
        self.refusal = ActionRefusal(kind, sentence)


def _is_streamed(path: Path) -> bool:
    return path in STREAMED_PATHS or (len(path) == len(PARAMS_PATH) + 1 and path[:-1] == PARAMS_PATH)


def _build_action(fields: Mapping[str, object]) -> Action:
    action = Action(
        action=_read_kind(fields),
        notes=_read_text(fields, "notes") or "",
        tool_call=_read_call(fields),
        final_answer=_read_text(fields, "final_answer"),
        suggested_followups=_read_followups(fields),
    )
    _check_consistency(action)
    if action.action == "call_tool" and action.final_answer:
        return replace(action, final_answer=None, dropped_answer=True)
    return action


def _read_kind(fields: Mapping[str, object]) -> ActionKind:
    written = fields.get("action")
    if written is None:
        raise _Refused("missing_field", f'The action has no field "action". Its form is {_SHAPE}')
    for kind in get_args(ActionKind):
        if written == kind:
            return kind
    if not isinstance(written, str):
        raise _wrong_type("action", "a string")
    raise _Refused(
        "unknown_action",
        f'"action" is {written[:60]!r}; it must be "call_tool", "complete" or "exit". Name the tool in "tool_call".',
    )


def _read_text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _wrong_type(name, "a string or null")


def _read_call(fields: Mapping[str, object]) -> ToolCall | None:
    written = fields.get("tool_call")
    if written is None:
        return None
    call = as_object(written)
    if call is None:
        raise _wrong_type("tool_call", "one object or null, never a list")
    tool_id = _read_text(call, "tool_id")
    if not tool_id:
        raise _Refused("missing_field", '"tool_call" has no "tool_id". Name the tool to call.')
    params = read_params(call.get("params"))
    if params is None:
        raise _wrong_type("tool_call.params", "an object")
    return ToolCall(tool_id, params)


def read_params(given: object) -> Mapping[str, object] | None:
    """The parameters of a call, which can be missing or encoded twice; None if they are not an object."""
    if isinstance(given, str) and not isinstance(read := read_json(given), JsonRefusal):
        given = read.value
    return as_object({} if given is None else given)


def _read_followups(fields: Mapping[str, object]) -> tuple[str, ...] | None:
    written = fields.get("suggested_followups")
    if written is None:
        return None
    items = cast("list[object]", written) if isinstance(written, list) else [None]
    texts = tuple(item for item in items if isinstance(item, str))
    if len(texts) < len(items):
        raise _wrong_type("suggested_followups", "a list of strings or null")
    return texts


def _check_consistency(action: Action) -> None:
    match action.action:
        case "call_tool":
            if action.tool_call is None:
                raise _Refused("missing_field", '"action" is "call_tool", but "tool_call" does not say which tool.')
        case "complete" | "exit":
            if action.tool_call is not None:
                raise _Refused(
                    "contradiction",
                    f'"{action.action}" ends the turn, but there is a "tool_call". Call the tool or answer, not both.',
                )
            if not (action.final_answer or "").strip():
                raise _Refused("missing_field", f'"{action.action}" needs a "final_answer" with the text for the user.')


def _wrong_type(name: str, wanted: str) -> _Refused:
    return _Refused("wrong_type", f'"{name}" must be {wanted}.')


@dataclass(frozen=True, slots=True)
class FanoutRules:
    """Which actions may share a reply: the ordered matrix of strategies, and what may accompany a final answer.

    `strategies` has every offered tool; `code_tools` are those that run the program of the code channel.
    """

    strategies: Mapping[str, Strategy]
    code_tools: frozenset[str] = frozenset()
    max_actions: int = MAX_ACTIONS


@dataclass(frozen=True, slots=True)
class ActionHead:
    """The part of an action that is needed to judge it. `tool_id` is None for a final action."""

    tool_id: str | None

    @property
    def is_final(self) -> bool:
        return self.tool_id is None


class ActionJudge:
    """Judges the actions of one reply in the order in which they are written.

    An accepted action counts for later ones, even if it turns out that it can't run, because text may already have been
    shown.
    """

    def __init__(self, rules: FanoutRules) -> None:
        self._rules = rules
        self._passed: list[ActionHead] = []
        self._paths: set[str] = set()

    @property
    def passed(self) -> int:
        """How many actions were accepted."""
        return len(self._passed)

    def judge(self, head: ActionHead) -> ActionRefusal | None:
        """Why the next action must not run; None accepts it."""
        refusal = self._refuse_final() if head.tool_id is None else self._refuse_call(head.tool_id)
        if refusal is None and len(self._passed) >= self._rules.max_actions:
            refusal = ActionRefusal("too_many_actions", f"A reply may have at most {self._rules.max_actions} actions.")
        if refusal is None:
            self._passed.append(head)
        return refusal

    def claim_path(self, tool_id: str | None, path: str) -> ActionRefusal | None:
        """Claim the path that an exploitation tool writes to; two calls of a reply may not write to the same one."""
        if self._rules.strategies.get(tool_id or "") != "exploitation":
            return None
        return claim(self._paths, path)

    def _refuse_final(self) -> ActionRefusal | None:
        if any(head.is_final for head in self._passed):
            return ActionRefusal("second_final", "A reply may have only one final answer.")
        if any(self._strategy(head) != "neutral" for head in self._passed):
            return ActionRefusal(
                "final_after_work",
                "A final answer can't follow a call whose result you have not seen. Answer in a later round.",
            )
        return None

    def _refuse_call(self, tool_id: str) -> ActionRefusal | None:
        strategy = self._rules.strategies.get(tool_id)
        if strategy is None:
            tools = ", ".join(self._rules.strategies) or "none"
            name = ascii(tool_id[:80])
            sentence = f"The tool {name} does not exist. The tools are: {tools}."
            return ActionRefusal("unknown_tool", sentence, missing_tool=name[1:-1])
        if any(head.is_final for head in self._passed) and strategy != "neutral":
            return ActionRefusal(
                "work_after_final", f"After a final answer {tool_id} can't run; only neutral tools can."
            )
        if tool_id in self._rules.code_tools and any(head.tool_id in self._rules.code_tools for head in self._passed):
            return ActionRefusal(
                "second_program", "A reply may run only one program. Run the next one in a later round."
            )
        for head in self._passed:
            if head.tool_id is not None and not may_follow(self._strategy(head), strategy):
                return _refuse_pair(head.tool_id, tool_id, self._strategy(head), strategy)
        return None

    def _strategy(self, head: ActionHead) -> Strategy:
        return "neutral" if head.tool_id is None else self._rules.strategies.get(head.tool_id, "unknown")


def may_follow(first: Strategy, then: Strategy) -> bool:
    """Whether a call of strategy `then` may follow one of `first` in the same reply."""
    if "unknown" in (first, then):
        return False
    return (first, then) != ("exploration", "exploitation")


def claim(claimed: set[str], path: str) -> ActionRefusal | None:
    """Why another call of the reply may not write to `path`; None claims it for this call."""
    canonical = canonical_path(path)
    if canonical in claimed:
        return ActionRefusal("same_path", f"Another action of the reply writes {path[:200]!a}. Write it in one action.")
    claimed.add(canonical)
    return None


def canonical_path(path: str) -> str:
    """The canonical form of all names for a file of this turn: ref or path, with or without the turn, in any letter
    case."""
    inner = _TURN_FOLDER.sub("", path.strip(), count=1)
    inner = posixpath.normpath(inner).casefold()
    return inner if inner.startswith(_FOLDERS) else f"files/{inner}"


def _refuse_pair(earlier_id: str, tool_id: str, earlier: Strategy, strategy: Strategy) -> ActionRefusal:
    if "unknown" in (earlier, strategy):
        alone = earlier_id if earlier == "unknown" else tool_id
        return ActionRefusal("beside_unknown", f"{alone} must be the only action of its reply.")
    return ActionRefusal(
        "explore_then_exploit",
        f"{tool_id} can't follow {earlier_id} in the same reply. Wait for that result, then use it.",
    )

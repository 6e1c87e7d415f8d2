"""The model's decision in one reply: its actions, its programs, and the problems of the reply."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Decision:
    """One parsed reply. `actions` are those that can run, in order; `raw` is the part of the reply that was read."""

    raw: str
    thinking: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    programs: tuple[Program, ...] = ()
    summary: str | None = None
    answer: StreamedAnswer | None = None
    outside: str = ""
    problems: tuple[Problem, ...] = ()
    stopped_by: CutReason | None = None
    """What ended the reply before the model had finished it, if known."""

    @property
    def cut_reason(self) -> CutReason | None:
        """Why the streamed answer stops before its end; None if it is complete, or there is none."""
        if self.answer is None or self.answer.complete:
            return None
        return self.stopped_by or "incomplete"

    @property
    def fatal_problems(self) -> tuple[Problem, ...]:
        """The problems that require another attempt."""
        return tuple(problem for problem in self.problems if problem.fatal)

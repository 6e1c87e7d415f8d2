"""Refs: the logical addresses of everything in a conversation.

A ref names, it does not authorize. Each family is one frozen value with one form, for writing and parsing.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, ParamSpec, get_args

from everturn.core.errors import Invalid

MAX_PATH_BYTES = 1024
MAX_PART_BYTES = 255
"""The limit of Linux file systems for one name."""
MAX_REF_CHARS = 2048
MAX_SIDS = 200

_P = ParamSpec("_P")
_SHOWN_CHARS = 80
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,119}"
_NUMBER = r"0|[1-9][0-9]{0,8}"
_PATTERNS = dict.fromkeys(("call", "plan", "message_id"), _NAME) | {
    "conversation": r"conv_[A-Za-z0-9_-]{1,75}",
    "turn": r"turn_[A-Za-z0-9_-]{1,75}",
    "kind": r"[a-z][a-z0-9_]{0,39}",
    "label": _LABEL,
    "what": _LABEL,
    "name": r"[^/]+",
    "path": r".+",
    "namespace": r"[a-z0-9][a-z0-9_-]{0,63}",
    "skill": r"[a-z0-9][a-z0-9-]{0,63}",
    "document": r".+?",
    "n": _NUMBER,
    "round": _NUMBER,
    "first": r"[1-9][0-9]{0,8}",
    "last": r"[1-9][0-9]{0,8}",
    "sids": r"[0-9, -]{1,1000}",
}
"""The pattern of each field of a ref. `check_path` also checks paths and names."""
_FIELDS = {name: re.compile(pattern, re.DOTALL) for name, pattern in _PATTERNS.items()}
_BREAKING = ("Cc", "Cs", "Zl", "Zp")
"""Controls, lone surrogates, line and paragraph separators: they would break a line or an encoding."""

_LOCAL = re.compile(r"(?<![A-Za-z0-9_.:/-])((?:ar|tc|fi|su|ws):(?=turn_)|ar:(?=plan\.latest:)|so:(?=sources_pool\[))")


def check_path(path: str) -> None:
    """Raise Invalid unless `path` is relative, canonical and safe to join to a folder."""
    if len(path) > MAX_PATH_BYTES or "\\" in path or any(unicodedata.category(c) in _BREAKING for c in path):
        raise Invalid(f"The path {_shown(path)} is too long, or contains a backslash or a control character.")
    if unicodedata.normalize("NFC", path) != path:
        raise Invalid(f"The path {_shown(path)} is not in Unicode form NFC.")
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise Invalid(f"The path {_shown(path)} must be relative, without empty parts, '.' and '..'.")
    if len(path.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        raise Invalid(
            f"The path {_shown(path)} is longer than {MAX_PATH_BYTES} bytes, or a name than {MAX_PART_BYTES}."
        )


@cache
def _field_names(family: type["_Ref"]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(family))


@dataclass(frozen=True, slots=True)
class _Ref:
    """Fields are checked by their name, so that every ref can be parsed back. `conversation` is None inside the
    conversation itself; a ref to another one needs the same principal."""

    form: ClassVar[str]
    conversation: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in _field_names(type(self)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, tuple):
                _check_field(name, str(value))

    def __str__(self) -> str:
        values = {name: getattr(self, name) for name in _field_names(type(self))}
        values["owner"] = f"{values['conversation']}." if values.get("conversation") else ""
        values["suffix"] = "" if values.get("n") is None else f".{values['n']}"
        return self.form.format_map(values)


@dataclass(frozen=True, slots=True)
class PromptRef(_Ref):
    """The prompt of a turn."""

    form = "ar:{owner}{turn}.user.prompt"
    turn: str


@dataclass(frozen=True, slots=True)
class CompletionRef(_Ref):
    """An answer of a turn: the latest, or the one with the number `n` (from 1) of a turn with several."""

    form = "ar:{owner}{turn}.assistant.completion{suffix}"
    turn: str
    n: int | None = None


@dataclass(frozen=True, slots=True)
class ExternalRef(_Ref):
    """A signal or an external event."""

    form = "ar:{owner}{turn}.external.{kind}.{message_id}"
    turn: str
    kind: str
    message_id: str


@dataclass(frozen=True, slots=True)
class NotesRef(_Ref):
    """The notes of a call."""

    form = "ar:{owner}{turn}.react.notes.{call}"
    turn: str
    call: str


@dataclass(frozen=True, slots=True)
class PlanRef(_Ref):
    """A plan at the end of the turn."""

    form = "ar:{owner}{turn}.react.plan.{plan}"
    turn: str
    plan: str


@dataclass(frozen=True, slots=True)
class PlanLatestRef(_Ref):
    """The newest snapshot of a plan."""

    form = "ar:{owner}plan.latest:{plan}"
    plan: str


@dataclass(frozen=True, slots=True)
class PlanAckRef(_Ref):
    """The step marks of round `n`."""

    form = "ar:{owner}{turn}.react.plan.ack.{n}"
    turn: str
    n: int


@dataclass(frozen=True, slots=True)
class TurnIndexRef(_Ref):
    """The index of a turn, rebuilt on demand."""

    form = "ar:{owner}{turn}.react.turn.index"
    turn: str


@dataclass(frozen=True, slots=True)
class NamedArtifactRef(_Ref):
    """A named value of a turn: `summary` is another name of its working summary."""

    form = "ar:{owner}{turn}.artifacts.{label}"
    turn: str
    label: str


@dataclass(frozen=True, slots=True)
class RoundRef(_Ref):
    """A block without a family of its own; round 0 is before the first round."""

    form = "ar:{owner}{turn}.round.{round}.{what}"
    turn: str
    round: int
    what: str


@dataclass(frozen=True, slots=True)
class CallRef(_Ref):
    """A tool call."""

    form = "tc:{owner}{turn}.{call}.call"
    turn: str
    call: str


@dataclass(frozen=True, slots=True)
class ResultRef(_Ref):
    """The result of a tool call."""

    form = "tc:{owner}{turn}.{call}.result"
    turn: str
    call: str


@dataclass(frozen=True, slots=True)
class FileRef(_Ref):
    """A file of the workspace."""

    form = "fi:{owner}{turn}.files/{path}"
    turn: str
    path: str


@dataclass(frozen=True, slots=True)
class OutputRef(_Ref):
    """A produced file that is not part of the workspace."""

    form = "fi:{owner}{turn}.outputs/{path}"
    turn: str
    path: str


@dataclass(frozen=True, slots=True)
class AttachmentRef(_Ref):
    """A file attached to the message of the turn."""

    form = "fi:{owner}{turn}.user.attachments/{name}"
    turn: str
    name: str


@dataclass(frozen=True, slots=True)
class ExternalAttachmentRef(_Ref):
    """A file attached to a signal or an external event."""

    form = "fi:{owner}{turn}.external.{kind}.attachments/{message_id}/{name}"
    turn: str
    kind: str
    message_id: str
    name: str


@dataclass(frozen=True, slots=True)
class LogRef(_Ref):
    """A log of a turn."""

    form = "fi:{owner}{turn}.logs/{path}"
    turn: str
    path: str


@dataclass(frozen=True, slots=True)
class SourcesRef(_Ref):
    """Rows of the source pool; `sids` ascend and are unique."""

    form = "so:{owner}sources_pool[{sids}]"
    sids: tuple[int, ...]

    def __post_init__(self) -> None:
        _Ref.__post_init__(self)
        if not 0 < len(self.sids) <= MAX_SIDS or self.sids[0] < 1 or any(a >= b for a, b in pairwise(self.sids)):
            raise Invalid(f"Give 1 to {MAX_SIDS} different source numbers, each at least 1, in ascending order.")

    def __str__(self) -> str:
        return f"so:{self.conversation + '.' if self.conversation else ''}sources_pool[{_format_sids(self.sids)}]"


@dataclass(frozen=True, slots=True)
class RangeSummaryRef(_Ref):
    """The summary of the turns before this one."""

    form = "su:{owner}{turn}.conv.range.summary"
    turn: str


@dataclass(frozen=True, slots=True)
class WorkingSummaryRef(_Ref):
    """The model's notes about a turn at its end."""

    form = "ws:{owner}{turn}.conv.working.summary"
    turn: str


@dataclass(frozen=True, slots=True)
class SkillRef(_Ref):
    """A file of a skill, which belongs to the agent and to no conversation."""

    form = "sk:{namespace}.{skill}/{path}"
    namespace: str
    skill: str
    path: str


@dataclass(frozen=True, slots=True)
class KnowledgeRef(_Ref):
    """A document of the agent's knowledge, which belongs to no conversation; whole, or its lines `first` to `last`."""

    form = "ks:{document}{lines}"
    document: str
    first: int | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        _Ref.__post_init__(self)
        if self.last is not None and (self.first is None or self.last < self.first):
            raise Invalid("The last line of a ks: ref must not be before its first line.")

    def __str__(self) -> str:
        first = "" if self.first is None else f"#L{self.first}"
        return f"ks:{self.document}{first}{'' if self.last is None else f'-L{self.last}'}"


Ref = (
    PromptRef | CompletionRef | ExternalRef | NotesRef | PlanRef | PlanLatestRef | PlanAckRef
    | TurnIndexRef | NamedArtifactRef | RoundRef | CallRef | ResultRef | FileRef | OutputRef | AttachmentRef
    | ExternalAttachmentRef | LogRef | SourcesRef | RangeSummaryRef | WorkingSummaryRef | SkillRef | KnowledgeRef
)  # fmt: skip


def parse_ref(text: str) -> Ref:
    """Parse a ref. Raises Invalid with a sentence that lists the forms of refs of that kind."""
    if len(text) > MAX_REF_CHARS:
        raise Invalid(f"A ref can have at most {MAX_REF_CHARS} characters.")
    scheme = text.partition(":")[0]
    for pattern, family in _FAMILIES:
        if match := pattern.fullmatch(text):
            return family(**{name: _read_field(name, value) for name, value in match.groupdict().items() if value})
    forms = [family.form.replace("{owner}", "").replace("{lines}", "#L10-L40") for _, family in _FAMILIES]
    known = [form for form in forms if form.startswith(f"{scheme}:")]
    if not known:
        raise Invalid(f"{_shown(text)} is not a ref: refs start with ar:, tc:, fi:, so:, su:, ws:, sk: or ks:.")
    raise Invalid(f"{_shown(text)} is not a ref. The {scheme}: refs are " + ", ".join(known) + ".")


def _compiled(form: str) -> re.Pattern[str]:
    escaped = re.escape(form).replace(r"\{owner\}", rf"(?:(?P<conversation>{_PATTERNS['conversation']})\.)?")
    escaped = escaped.replace(r"\{suffix\}", rf"(?:\.(?P<n>{_NUMBER}))?")
    lines = rf"(?:#L(?P<first>{_PATTERNS['first']})(?:-L?(?P<last>{_PATTERNS['last']}))?)?"
    escaped = escaped.replace(r"\{lines\}", lines)
    return re.compile(re.sub(r"\\{(\w+)\\}", lambda m: f"(?P<{m[1]}>{_PATTERNS[m[1]]})", escaped), re.DOTALL)


def _read_field(name: str, value: str) -> str | int | tuple[int, ...]:
    if name == "sids":
        return _read_sids(value)
    return int(value) if name in ("n", "round", "first", "last") else value


def _check_field(name: str, value: str) -> None:
    if not _FIELDS[name].fullmatch(value):
        raise Invalid(f"{_shown(value)} can't be the {name.replace('_', ' ')} of a ref.")
    if name in ("name", "path", "document"):
        check_path(value)


def _read_sids(text: str) -> tuple[int, ...]:
    sids: set[int] = set()
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if not match:
            raise Invalid(f"{_shown(text)} is not a list of source numbers such as 1-3,7.")
        first, last = sorted((int(match[1]), int(match[2] or match[1])))
        sids.update(range(first, min(last, first + MAX_SIDS) + 1))
    return tuple(sorted(sids))


def _format_sids(sids: tuple[int, ...]) -> str:
    runs: list[list[int]] = []
    for sid in sids:
        if runs and sid == runs[-1][1] + 1:
            runs[-1][1] = sid
        else:
            runs.append([sid, sid])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "...")


def _spelled(family: Callable[_P, Ref]) -> Callable[_P, str]:
    return lambda *args, **kwargs: str(family(*args, **kwargs))


_FAMILIES: tuple[tuple[re.Pattern[str], Any], ...] = tuple((_compiled(family.form), family) for family in get_args(Ref))

prompt_ref = _spelled(PromptRef)
completion_ref = _spelled(CompletionRef)
external_ref = _spelled(ExternalRef)
notes_ref = _spelled(NotesRef)
plan_ref = _spelled(PlanRef)
plan_ack_ref = _spelled(PlanAckRef)
turn_index_ref = _spelled(TurnIndexRef)
named_artifact_ref = _spelled(NamedArtifactRef)
round_ref = _spelled(RoundRef)
call_ref = _spelled(CallRef)
result_ref = _spelled(ResultRef)
file_ref = _spelled(FileRef)
output_ref = _spelled(OutputRef)
log_ref = _spelled(LogRef)
range_summary_ref = _spelled(RangeSummaryRef)
working_summary_ref = _spelled(WorkingSummaryRef)
skill_ref = _spelled(SkillRef)


def knowledge_ref(document: str, first: int | None = None, last: int | None = None) -> str:
    """The ref of a document of the agent's knowledge, or of some of its lines."""
    return str(KnowledgeRef(document, first, last))


def sources_ref(sids: Iterable[int]) -> str:
    """The ref of rows of the source pool, given in any order."""
    return str(SourcesRef(tuple(sorted(set(sids)))))


def owner_of(ref: Ref) -> str | None:
    """The conversation that a ref names; None if it names none. Refs are stored without their own conversation, and
    shown with it elsewhere."""
    return ref.conversation


def qualify_ref(ref: Ref, conversation_id: str) -> Ref:
    """The same ref with its conversation; unchanged if it already names one, or belongs to none."""
    named = ref.conversation is not None or "{owner}" not in ref.form
    return ref if named else replace(ref, conversation=conversation_id)


def localize_ref(ref: Ref, conversation_id: str) -> Ref:
    """The ref as it is stored in this conversation; a ref to another conversation is unchanged."""
    return ref if ref.conversation != conversation_id else replace(ref, conversation=None)


def qualify_text(text: str, conversation_id: str) -> str:
    """A text of a conversation with refs that are valid in other conversations. Idempotent."""
    return _LOCAL.sub(rf"\g<1>{conversation_id}.", text)

"""Parses the conversation from a rendered prompt: the only place that depends on the renderer's format.

A block begins with a header line, `[<type> <ref> ...]`, followed by a word for calls and results; its body is all lines
up to the next header. The last user part is ANNOUNCE. The system message lists tools as `- <tool id> ...`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from everturn.models.port import ModelRequest, TextPart
from everturn.timeline.inert import read_back, read_field

_HEADER = re.compile(
    r"^\[(?P<kind>TURN|ANNOUNCE|SOURCES POOL|COMPACTED PRIOR CONVERSATION MEMORY|MID-TURN CHECKPOINT"
    r"|(?:turn|user|react|assistant|conv|system|event|stage|approval)\.[a-z.]+)"
    r"(?P<rest>(?: [^\n]*?)?)\](?P<after>[^\]\n]*)$"
)
_TOOL = re.compile(r"^- ([a-z_]+\.[a-z_]+)", re.MULTILINE)
_ITERATION = re.compile(r"Iteration (\d+)/(\d+)")
_PLAN = re.compile(r"plan_id=(\S+)(.*)")
_STEP = re.compile(r"([□…✓✗])\s*\[(\d+)\]\s*(.*)")
_ATTACHMENT = re.compile(r"^(?P<ref>fi:.+?)(?: mime=(?P<mime>.*?))?(?: size=\d*)?(?: path=(?P<path>.+))?$")
_NOW = re.compile(r"^now \(UTC\): (\S+)", re.MULTILINE)
_ZONE = re.compile(r"^user timezone: (\S+)", re.MULTILINE)
_CODE_STATE = re.compile(r"^code: (.+)", re.MULTILINE)
_CHECKPOINT = "MID-TURN CHECKPOINT"
_ACTIVE = re.compile(r"^## Active request\n- (?P<text>.+?)(?: \(ar:[^ ()]+\))?$", re.MULTILINE)
"""Matches the prompt that a checkpoint of the running turn contains."""
_PROG_NAME = re.compile(r'"prog_name"\s*:\s*"([^"\\]+)"')

_LONG_BLANK = re.compile(r"(\s{40})\s+")
_MAX_ASK_CHARS = 8000
"""Limit of the text read of a message. The rules match each sentence many times, and their patterns are quadratic in a
run of blanks: 12,000 line breaks took 14 s of CPU time."""

StepMark = Literal["pending", "in_progress", "done", "failed"]
_MARKS: dict[str, StepMark] = {"□": "pending", "…": "in_progress", "✓": "done", "✗": "failed"}


@dataclass(frozen=True, slots=True)
class Block:
    """One rendered block: its type, the rest of the header, the word after the header, its body."""

    kind: str
    rest: str
    after: str
    body: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of the user. `mime` can name an encoding, as in `text/csv; charset=windows-1252`; `path` is relative to
    WORKDIR, `preview` its first lines ("" when none are shown)."""

    name: str
    mime: str
    path: str
    preview: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A message of the user in a turn."""

    kind: Literal["prompt", "followup", "steer"]
    text: str

    @staticmethod
    def read(kind: Literal["prompt", "followup", "steer"], text: str) -> "Ask":
        """The beginning of a message, without long runs of blanks."""
        return Ask(kind, _LONG_BLANK.sub(r"\1", text[:_MAX_ASK_CHARS]))


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of ours. `ok` and `report` are None while it has no result."""

    tool_id: str
    prog_name: str
    ok: bool | None
    report: str | None


@dataclass(frozen=True, slots=True)
class Turn:
    """The parts of one turn that the prompt still shows."""

    turn_id: str
    asks: tuple[Ask, ...]
    attachments: tuple[Attachment, ...]
    calls: tuple[Call, ...]
    notices: int
    completion: str


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """The current plan: its steps by number."""

    plan_id: str
    steps: tuple[tuple[int, str, StepMark], ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The content of the prompt. `turns[-1]` is the current one; `rounds_left` are those after this round.

    `now_utc` is ISO 8601, `code_state` says how programs run or why they can't; all three are "" if not stated.
    """

    turns: tuple[Turn, ...]
    memories: tuple[str, ...]
    tools: frozenset[str]
    plan: OpenPlan | None
    rounds_left: int
    now_utc: str = ""
    timezone: str = ""
    code_state: str = ""

    @property
    def now(self) -> Turn:
        return self.turns[-1]


def read_conversation(request: ModelRequest) -> Conversation:
    """The conversation of this request; text without blocks becomes one prompt, so there is always a turn."""
    blocks = list(read_blocks(_texts(request, system=False)))
    turns = _read_turns(blocks) or (_unmarked_turn(request),)
    announced = [f"{block.after}\n{block.body}" for block in blocks if block.kind == "ANNOUNCE"]
    announce = announced[-1] if announced else ""
    return Conversation(
        turns=turns,
        memories=tuple(_read_memories(blocks)),
        tools=frozenset(_TOOL.findall("\n".join(_texts(request, system=True)))),
        plan=_read_plan(announce),
        rounds_left=_read_rounds_left(announce),
        now_utc=_read_last(_NOW, announce),
        timezone=_read_last(_ZONE, announce),
        code_state=_read_last(_CODE_STATE, announce),
    )


def read_blocks(texts: Iterable[str]) -> Iterator[Block]:
    """The blocks of these text parts, in order. A part always begins a new block; text before a header is dropped."""
    for text in texts:
        header: re.Match[str] | None = None
        body: list[str] = []
        for line in text.split("\n"):
            found = _HEADER.match(line)
            if found is None:
                body.append(line)
                continue
            if header is not None:
                yield _build_block(header, body)
            header, body = found, []
        if header is not None:
            yield _build_block(header, body)


def _read_memories(blocks: list[Block]) -> Iterator[str]:
    """The replacements of blocks that are no longer shown: range summaries, and cards of pruned turns."""
    for block in blocks:
        match block.kind:
            case "COMPACTED PRIOR CONVERSATION MEMORY" | "MID-TURN CHECKPOINT":
                yield block.body.partition("\n")[2]  # the first line names what it replaces
            case "conv.working.summary" if block.after:
                yield block.body
            case _:
                pass


def _build_block(header: re.Match[str], body: list[str]) -> Block:
    return Block(header["kind"], header["rest"].strip(), header["after"].strip(), read_back("\n".join(body)).strip())


def _texts(request: ModelRequest, *, system: bool) -> list[str]:
    messages = (message for message in request.messages if (message.role == "system") is system)
    return [part.text for message in messages for part in message.parts if isinstance(part, TextPart)]


def _unmarked_turn(request: ModelRequest) -> Turn:
    texts = _texts(request, system=False)
    return Turn("", (Ask.read("prompt", texts[-1] if texts else ""),), (), (), 0, "")


def _read_turns(blocks: list[Block]) -> tuple[Turn, ...]:
    groups: list[tuple[str, list[Block]]] = []
    for block in blocks:
        if block.kind == "TURN":
            groups.append((block.rest.split(" ")[0], []))
        elif block.kind == "user.prompt" and not groups:
            groups.append(("", [block]))
        elif groups and (not block.kind.isupper() or block.kind == _CHECKPOINT):
            groups[-1][1].append(block)
    return tuple(_read_turn(turn_id, group) for turn_id, group in groups)


def _read_turn(turn_id: str, blocks: list[Block]) -> Turn:
    completions = [block.body for block in blocks if block.kind == "assistant.completion"]
    return Turn(
        turn_id=turn_id,
        asks=tuple(_read_asks(blocks)),
        attachments=tuple(_read_attachments(blocks)),
        calls=tuple(_read_calls(blocks)),
        notices=sum(block.kind == "react.notice" for block in blocks),
        completion=completions[-1] if completions else "",
    )


def _read_asks(blocks: list[Block]) -> Iterator[Ask]:
    shown = any(block.kind == "user.prompt" for block in blocks)
    for block in blocks:
        match block.kind:
            case "user.prompt":
                yield Ask.read("prompt", block.body)
            case "user.followup":
                yield Ask.read("followup", block.body)
            case "user.steer":
                yield Ask.read("steer", block.body)
            case "MID-TURN CHECKPOINT" if not shown and (found := _ACTIVE.search(block.body)):
                yield Ask.read("prompt", found["text"])
            case "event.external" if "(recorded only)" not in block.after:
                yield Ask.read("followup", block.body)
            case _:
                pass


def _read_attachments(blocks: list[Block]) -> Iterator[Attachment]:
    previews = {_file_ref(block): block.body for block in blocks if block.kind == "user.attachment.text"}
    for block in blocks:
        found = _ATTACHMENT.match(block.rest) if block.kind == "user.attachment.meta" else None
        if found is not None:
            ref, path = read_field(found["ref"]), read_field(found["path"] or "")
            name = ref.rsplit("/", 1)[-1]
            yield Attachment(name, found["mime"] or "", path or _path_of(ref), previews.get(ref, ""))


def _file_ref(block: Block) -> str:
    found = _ATTACHMENT.match(block.rest)
    return read_field(found["ref"] if found else block.rest)


def _path_of(ref: str) -> str:
    """`fi:<turn>.user.attachments/<name>` is at `<turn>/attachments/<name>`; a signal's file is below `external/`."""
    turn_id, _, rest = ref.removeprefix("fi:").partition(".")
    folder, _, name = rest.partition("/")
    return "/".join([turn_id, *folder.removeprefix("user.").split("."), name])


def _read_calls(blocks: list[Block]) -> Iterator[Call]:
    results = {_call_id(block): block for block in blocks if block.kind == "react.tool.result"}
    for block in blocks:
        if block.kind == "react.tool.call":
            result = results.get(_call_id(block))
            ok = None if result is None else result.after.split(" ")[0].lower() == "ok"
            tool_id = block.after.split(" ")[0]
            yield Call(tool_id, _read_prog_name(block.body), ok, None if result is None else result.body)


def _call_id(block: Block) -> str:
    return block.rest.split(" ")[0].rsplit(".", 1)[0]


def _read_prog_name(params: str) -> str:
    try:
        return str(json.loads(params).get("prog_name", ""))
    except (ValueError, AttributeError):  # long parameters are shown cut
        found = _PROG_NAME.search(params)
        return found[1] if found else ""


def _read_rounds_left(announce: str) -> int:
    found = _ITERATION.findall(announce)
    return max(0, int(found[-1][1]) - int(found[-1][0])) if found else 1


def _read_last(pattern: re.Pattern[str], announce: str) -> str:
    found = pattern.findall(announce)
    return str(found[-1]) if found else ""


def _read_plan(announce: str) -> OpenPlan | None:
    current: OpenPlan | None = None
    for line in announce.split("\n"):
        plan, step = _PLAN.search(line), _STEP.search(line)
        if plan is not None:
            if current is not None and current.steps:
                return current
            current = OpenPlan(plan[1], ()) if "(current)" in plan[2] else None
        elif step is not None and current is not None:
            mark = (int(step[2]), step[3].strip(), _MARKS[step[1]])
            current = OpenPlan(current.plan_id, (*current.steps, mark))
    return current

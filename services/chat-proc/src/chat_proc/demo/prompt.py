"""Reads the conversation back from a rendered prompt, which is all that a model gets.

A block begins with a header line, `[<type> <ref> ...]`, followed by a word for calls and results; its body is all lines
up to the next header. The last block is ANNOUNCE. The system message lists the tools as `- <tool id> ...`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everturn.models.port import ModelRequest, TextPart
from everturn.timeline.inert import read_back, read_field

_HEADER = re.compile(
    r"^\[(?P<kind>TURN|ANNOUNCE|SOURCES POOL|COMPACTED PRIOR CONVERSATION MEMORY|MID-TURN CHECKPOINT"
    r"|(?:turn|user|react|assistant|conv|system|event|stage|approval)\.[a-z.]+)"
    r"(?P<rest>(?: [^\n]*?)?)\](?P<after>[^\]\n]*)$"
)
_TOOL = re.compile(r"^- ([a-z_]+\.[a-z_]+)", re.MULTILINE)
_ROUND = re.compile(r"^Round (\d+)/(\d+)", re.MULTILINE)
_CODE_STATE = re.compile(r"^code: (.+)", re.MULTILINE)
_CURRENT_PLAN = re.compile(r"^plan_id=\S+.*\(current\).*\n((?: +\S \[\d+\].*\n?)+)", re.MULTILINE)
_OPEN_STEP = re.compile(r"^ +[□…] \[(\d+)\]", re.MULTILINE)
_ATTACHMENT = re.compile(r"^fi:.+? mime=(?P<mime>.*?) size=\d+ path=(?P<path>.+)$")
_PROG_NAME = re.compile(r'"prog_name"\s*:\s*"([^"\\]+)"')
_SAID = ("user.prompt", "user.followup", "user.steer", "event.external")
_LONG_BLANK = re.compile(r"(\s{40})\s+")
_MAX_ASK_CHARS = 8_000
"""Limit of the text read of a message, so that the patterns of the rules take bounded time."""


@dataclass(frozen=True, slots=True)
class Block:
    """One rendered block: its type, the rest of the header, the word after the header, its body."""

    kind: str
    rest: str
    after: str
    body: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of the user. `path` is relative to WORKDIR."""

    path: str
    mime: str

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def is_table(self) -> bool:
        named = self.name.lower().endswith((".csv", ".tsv"))
        return named or self.mime.partition(";")[0] in ("text/csv", "text/tab-separated-values")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of this turn. `report` is None while it has no result; `name` is "" unless it runs a program."""

    tool_id: str
    name: str
    ok: bool
    report: str | None


@dataclass(frozen=True, slots=True)
class Ask:
    """A message that asks for something. `number` counts all messages of its turn from 1."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What the prompt still shows of a turn. `asks` leaves out what a steer has interrupted; `is_stopped` if nothing
    was said after the steer."""

    asks: tuple[Ask, ...]
    attachments: tuple[Attachment, ...]
    calls: tuple[Call, ...]
    notices: int
    is_stopped: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """The content of a prompt. `turns[-1]` is the running turn; `rounds_left` are those after this round.

    `open_steps` are the unfinished ones of the current plan; `code_state` says how programs run or why they can't.
    """

    turns: tuple[Turn, ...]
    tools: frozenset[str]
    open_steps: frozenset[int]
    rounds_left: int
    code_state: str

    @property
    def now(self) -> Turn:
        return self.turns[-1]


def read_conversation(request: ModelRequest) -> Conversation:
    """The conversation in a prompt; a prompt without blocks is one message."""
    texts = _read_texts(request, system=False)
    blocks = list(_read_blocks(texts))
    announced = [f"{block.after}\n{block.body}" for block in blocks if block.kind == "ANNOUNCE"]
    announce = announced[-1] if announced else ""
    number, plan, code = _ROUND.search(announce), _CURRENT_PLAN.search(announce), _CODE_STATE.search(announce)
    unmarked = Turn((Ask(1, _shorten(texts[-1]) if texts else ""),), (), (), 0, is_stopped=False)
    return Conversation(
        turns=_read_turns(blocks) or (unmarked,),
        tools=frozenset(_TOOL.findall("\n".join(_read_texts(request, system=True)))),
        open_steps=frozenset(map(int, _OPEN_STEP.findall(plan[1]))) if plan else frozenset(),
        rounds_left=max(0, int(number[2]) - int(number[1])) if number else 1,
        code_state=code[1] if code else "",
    )


def _read_texts(request: ModelRequest, *, system: bool) -> list[str]:
    messages = (message for message in request.messages if (message.role == "system") is system)
    return [part.text for message in messages for part in message.parts if isinstance(part, TextPart)]


def _shorten(text: str) -> str:
    return _LONG_BLANK.sub(r"\1", text[:_MAX_ASK_CHARS])


def _read_blocks(texts: Sequence[str]) -> Iterator[Block]:
    """A text part always begins a new block; text before a header is ignored."""
    for text in texts:
        header: re.Match[str] | None = None
        body: list[str] = []
        for line in [*text.split("\n"), "[TURN]"]:
            found = _HEADER.match(line)
            if found is None:
                body.append(line)
                continue
            if header is not None:
                whole = read_back("\n".join(body))
                yield Block(header["kind"], header["rest"].strip(), header["after"].strip(), whole.strip("\n"))
            header, body = found, []


def _read_turns(blocks: Sequence[Block]) -> tuple[Turn, ...]:
    groups: list[list[Block]] = []
    for block in blocks:
        if block.kind == "TURN" or (block.kind == "user.prompt" and not groups):
            groups.append([])
        if groups and not block.kind.isupper():
            groups[-1].append(block)
    return tuple(map(_read_turn, groups))


def _read_turn(blocks: Sequence[Block]) -> Turn:
    said = [block for block in blocks if block.kind in _SAID and "(recorded only)" not in block.after]
    steered = max((number for number, block in enumerate(said, 1) if block.kind == "user.steer"), default=0)
    files = [_ATTACHMENT.match(block.rest) for block in blocks if block.kind == "user.attachment.meta"]
    return Turn(
        asks=tuple(Ask(number, _shorten(block.body)) for number, block in enumerate(said, 1) if number > steered),
        attachments=tuple(Attachment(read_field(file["path"]), file["mime"]) for file in files if file),
        calls=tuple(_read_calls(blocks)),
        notices=sum(block.kind == "react.notice" for block in blocks),
        is_stopped=0 < steered == len(said),
    )


def _read_calls(blocks: Sequence[Block]) -> Iterator[Call]:
    results = {_read_call_id(block): block for block in blocks if block.kind == "react.tool.result"}
    for block in blocks:
        if block.kind == "react.tool.call":
            result = results.get(_read_call_id(block))
            ok, report = (result.after.startswith("ok"), result.body) if result else (False, None)
            name = _PROG_NAME.search(block.body)
            yield Call(block.after.split(" ")[0], name[1] if name else "", ok, report)


def _read_call_id(block: Block) -> str:
    return block.rest.split(" ")[0].rsplit(".", 1)[0]

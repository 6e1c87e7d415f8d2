"""Replies of the offline model and how they are written in the channel protocol."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from chat_proc.models.offline.programs import Program

RUN_PROGRAM = "exec_tools.execute_code_python"
MAKE_PLAN = "react.plan"
WRITE_FILE = "react.write"
_PROGRAM_TIMEOUT_S = 60
_CODE_LINES = 10
_CODE = re.compile(r"(<channel:code>.*</channel:code>)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RunCode:
    """Ask for a program to be run."""

    thinking: str
    notes: str
    program: Program


@dataclass(frozen=True, slots=True)
class NewPlan:
    """Ask for a plan with these step labels."""

    thinking: str
    notes: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteNote:
    """Record the result of a step that needs only text; the user sees the notes, not the file."""

    thinking: str
    notes: str
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Answer:
    """End the turn. `summary` is the working summary for later turns."""

    thinking: str
    notes: str
    text: str
    followups: tuple[str, ...]
    summary: str


Reply = RunCode | NewPlan | WriteNote | Answer


def render_reply(reply: Reply) -> str:
    """The reply as channel text."""
    thinking = f"<channel:thinking>{_make_inert(reply.thinking)}</channel:thinking>\n" if reply.thinking else ""
    match reply:
        case RunCode(program=program):
            params: dict[str, object] = {
                "contract": [
                    {"filepath": path, "description": description, "visibility": "external"}
                    for path, description in program.outputs
                ],
                "prog_name": program.name,
                "timeout_s": _PROGRAM_TIMEOUT_S,
            }
            code = f"\n<channel:code>\n{program.code.strip()}\n</channel:code>\n"
            return thinking + _render_call(reply.notes, RUN_PROGRAM, params) + code
        case NewPlan(steps=steps):
            return thinking + _render_call(reply.notes, MAKE_PLAN, {"mode": "new", "steps": list(steps)})
        case WriteNote(path=path, content=content):
            written: dict[str, object] = {"path": path, "channel": "internal", "kind": "display", "content": content}
            return thinking + _render_call(reply.notes, WRITE_FILE, written)
        case Answer():
            action: dict[str, object] = {
                "action": "complete",
                "notes": reply.notes,
                "tool_call": None,
                "final_answer": reply.text,
                "suggested_followups": list(reply.followups),
            }
            summary = f"<channel:summary>{_make_inert(reply.summary)}</channel:summary>\n"
            return f"{thinking}{_render_action(action)}\n{summary}"


def split_pieces(text: str, chunk_chars: int) -> Iterator[str]:
    """The text in pieces of `chunk_chars`, but programs several lines at a time, so that pacing stays fast."""
    for section in _CODE.split(text):
        if section.startswith("<channel:code>"):
            lines = section.splitlines(keepends=True)
            yield from ("".join(lines[at : at + _CODE_LINES]) for at in range(0, len(lines), _CODE_LINES))
        else:
            yield from (section[start : start + chunk_chars] for start in range(0, len(section), chunk_chars))


def _make_inert(text: str) -> str:
    """Escape names of files and columns that look like our tags."""
    return re.sub(r"<(/?channel:)", r"< \1", text, flags=re.IGNORECASE)


def _render_call(notes: str, tool_id: str, params: dict[str, object]) -> str:
    call = {"tool_id": tool_id, "params": params}
    return _render_action(
        {"action": "call_tool", "notes": notes, "tool_call": call, "final_answer": None, "suggested_followups": None}
    )


def _render_action(action: dict[str, object]) -> str:
    return f"<channel:action>{json.dumps(action, ensure_ascii=False)}</channel:action>"

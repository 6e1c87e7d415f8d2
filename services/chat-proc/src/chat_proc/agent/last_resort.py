"""The last resort for an answer: usable text that a model wrote in a wrong form, otherwise what the turn has done.
Pure."""

import json
import re
from collections.abc import Sequence
from typing import cast

from everturn.timeline import bodies
from everturn.timeline.blocks import Block

MAX_STEPS = 20
"""Steps that the account lists; the rest are only counted."""
_FENCE = "```"
_FENCE_START = re.compile(r"```[\w+.-]*+\s*+")
_OWN_MARKUP = re.compile(r"</?(?:channel:|tool_call|function|invoke)", re.IGNORECASE)
_OWN_KEYS = re.compile(r'"(?:action|tool_call|tool_id|tool|final_answer)"\s*:')
_ANSWER_KEYS = ("final_answer", "answer")
_STATUS_WORDS = {"ok": "done", "error": "failed", "ambiguous": "outcome unknown", "cancelled": "cancelled"}


def read_usable_text(text: str) -> str:
    """The text of a reply without channels that a person can read; empty if it is our own markup or JSON."""
    text = text.strip()
    fence = _FENCE_START.match(text)
    end = len(text) - len(_FENCE)
    inner = text[fence.end() : end].strip() if fence and fence.end() <= end and text.endswith(_FENCE) else text
    if inner[:1] in ("{", "["):
        return _read_json(inner, otherwise=text)
    return "" if _OWN_MARKUP.search(text) else text


def find_usable_text(turn_blocks: Sequence[Block]) -> str:
    """The last text of the turn that would have been an answer in the right form, or was shown as one."""
    for block in reversed(turn_blocks):
        match block.body:
            case bodies.AttemptBody() as attempt:
                return attempt.text if attempt.shown is None else attempt.shown
            case bodies.RawDecisionBody(code="no_channel", text=raw):
                if usable := read_usable_text(raw):
                    return usable
            case _:
                """Holds no answer."""
    return ""


def build_account(turn_blocks: Sequence[Block], cap: str) -> str:
    """What was done, for the person, in Markdown; empty if nothing was done."""
    results = [block.body for block in turn_blocks if isinstance(block.body, bodies.ToolResultBody)]
    results = [result for result in results if result.parent is None]
    if not results:
        return ""
    lines = [f"- {result.tool_id}: {_STATUS_WORDS[result.status]}" for result in results[:MAX_STEPS]]
    if len(results) > MAX_STEPS:
        lines.append(f"- and {len(results) - MAX_STEPS} more steps")
    files = [file.filename for result in results for file in result.artifacts if file.visibility == "external"]
    if files:
        lines.append(f"\nFiles: {', '.join(dict.fromkeys(files))}")
    return f"I could not finish the answer: I reached {cap}. This is what I did:\n\n" + "\n".join(lines)


def _read_json(text: str, *, otherwise: str) -> str:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return "" if _OWN_KEYS.search(text) else otherwise
    if not isinstance(value, dict):
        return "" if _OWN_KEYS.search(text) else otherwise
    fields = cast("dict[str, object]", value)
    answer = next((fields[key] for key in _ANSWER_KEYS if isinstance(fields.get(key), str)), None)
    if isinstance(answer, str):
        return answer.strip()
    return "" if _OWN_KEYS.search(text) else otherwise

"""Distinguishes the prose of a reply, which a person can read, from our own markup and JSON."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from chat_proc.channels.actions import CALL_KINDS, FINAL_KINDS
from chat_proc.models.json_values import (
    FENCE_START,
    JsonRefusal,
    JsonValue,
    as_object,
    is_whole,
    read_json,
    read_objects,
)
from chat_proc.models.markdown_code import Span, SpanKind, split_code
from chat_proc.models.think_tags import drop_reasoning

SETTLED_CHARS = 16
"""This many characters that begin no markup, JSON or a fence of it are the beginning of an answer."""
_FENCE = "```"
_FENCE_START = re.compile(rf"{FENCE_START}\s*+")
OWN_MARKUP = re.compile(
    r"</?(?:channel:|tool_calls?\b|function(?:_calls?\b|[=>]|\s++name\b)|invoke\b|think(?:ing)?\b"
    r"|action(?:>|\s++(?:name|type|tool)\b)|\|[a-z])",
    re.IGNORECASE,
)
"""An answer that names a tag puts it into code. Operators such as `<|>`, and tags of other languages, are text."""
_BEGINS_WITH_MARKUP = re.compile(rf"^[ \t]*+(?:{OWN_MARKUP.pattern})", re.IGNORECASE | re.MULTILINE)
_CALL_KIND, _FINAL_KIND = ("|".join(sorted(kinds)).replace("_", "[_ ]") for kinds in (CALL_KINDS, FINAL_KINDS))
_OWN_ACTION = re.compile(
    rf'\n[ \t]{{0,64}}+(?P<object>\{{\s*+(?:"action"\s*+:\s*+"(?:{_CALL_KIND}|{_FINAL_KIND})"'
    r'|"tool_call"\s*+:\s*+\{))',
    re.IGNORECASE,
)
"""An action that begins a line of an answer; one inside a line is quoted."""
_MAX_FENCE_CHARS = 256
"""A longer beginning without other text is not a fence: a model may repeat a character until its reply is cut off."""
_MAX_HELD_BLANKS = 256
"""So many blanks at the end of an answer are dropped; a model may repeat them until its reply is cut off."""
_MARKUP_BEGINNING = re.compile(
    r'</?[a-z_|:]{0,14}\Z|\{\s{0,64}(?:"[a-z_]{0,12}"?\s{0,8}:?\s{0,8}"?[a-z_]{0,12})?\Z', re.IGNORECASE
)
_STRAY_TAG = r"<(?:channel:|final_)?answer>|</(?:channel:[a-z]{1,16}|(?:final_)?answer|think(?:ing)?)>"
_STRAY_START = re.compile(rf"\s*+(?:{_STRAY_TAG})\s*+", re.IGNORECASE)
_STRAY_END = re.compile(rf"(?:{_STRAY_TAG})\Z", re.IGNORECASE)
_MAX_STRAY_TAGS = 4
_MAX_TAG_CHARS = 32
_OWN_KEYS = re.compile(r'"(?:action|tool_call|tool_id|tool|final_answer)"\s*:')
ANSWER_KEYS = ("answer", "final_answer")
"""Keys that models use for the answer, ours first."""
_FINAL_BEGINS = re.compile(
    rf"(?:\A|<channel:action>)\s*+(?>(?:{FENCE_START}\s*+)?)"
    rf'(?P<object>\{{)\s*+"action"\s*+:\s*+"(?:{_FINAL_KIND})"\s*+,\s*+'
    r'(?:"(?:notes|reasoning)"\s*+:\s*+"(?>(?:[^"\\]|\\.)*)"\s*+,\s*+)?"(?:final_)?answer"\s*+:\s*+"',
    re.IGNORECASE | re.DOTALL,
)
_FINAL_ENDS = re.compile(
    r'"\s*+(?:,\s*+"(?:notes|reasoning|suggested_followups|tool_call)"\s*+:'
    r"|\}\s*+(?>(?:`{3}\s*+)?)(?:</channel:action>|\Z))",
    re.IGNORECASE,
)
_ESCAPE_OR_BARE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\]')


def judge_beginning(text: str, settled_after: int) -> Literal["open", "settled", "other"]:
    """What a text without leading blanks is, judged by its beginning: see `ProseAnswer`."""
    fence = _FENCE_START.match(text)
    inner = text[fence.end() :] if fence else text
    if inner[:1] in ("{", "[", "<"):
        return "other"
    if len(text) > _MAX_FENCE_CHARS:
        return "settled"
    if not inner or len(text) < (SETTLED_CHARS if text[0] == "`" else settled_after):
        return "open"
    return "settled"


def may_have_own_form(text: str, kind: SpanKind) -> bool:
    """Whether a span contains our markup, or an action. Markup in code is text; an action in a fence may be meant."""
    return _OWN_ACTION.search(text) is not None or (kind == "text" and OWN_MARKUP.search(text) is not None)


def count_settled_chars(text: str) -> int:
    """How many characters of a piece of prose can be shown: its end may become markup, or is blank."""
    beginning = _MARKUP_BEGINNING.search(text)
    end = beginning.start() if beginning else len(text)
    return max(len(text[:end].rstrip()), end - _MAX_HELD_BLANKS)


def unfence(text: str) -> str:
    """The text inside a code fence, if the fence contains all of it."""
    text = text.strip()
    fence = _FENCE_START.match(text)
    end = len(text) - len(_FENCE)
    return text[fence.end() : end].strip() if fence and fence.end() <= end and text.endswith(_FENCE) else text


def has_own_keys(text: str) -> bool:
    """Whether a JSON text has keys of an action, rather than being an answer in JSON."""
    return _OWN_KEYS.search(text) is not None


def read_usable_text(text: str, *, is_declared: bool = False) -> str:
    """The text of a reply without an action that a person can read; empty if it is our own markup or JSON.

    Reasoning in tags, and tags without a partner around the text are dropped. Markup in code is part of an answer,
    and so is all markup if the answer `is_declared`, by a channel.
    """
    text = _drop_stray_tags(drop_reasoning(text).strip())
    inner = unfence(text)
    if inner[:1] in ("{", "["):
        return _read_answer_field(inner, otherwise=text)
    is_marked = (has_own_markup(text) and not is_declared) or (text.startswith("<") and has_own_keys(text))
    return "" if is_marked or _breaks_off_in_action(text) else text


def read_closing_text(text: str) -> str:
    """The usable text of a reply in which calls are ignored: markup inside a line is mentioned, not meant."""
    if usable := read_usable_text(text):
        return usable
    outside = _read_outside_code(split_code(text.strip()))
    return "" if _BEGINS_WITH_MARKUP.search(outside) else read_usable_text(text, is_declared=True)


def recover_answer(text: str) -> str:
    """The answer in a final action that is refused only because of what follows it, or of quotes and backslashes that
    are not escaped, the most common mistake in JSON; empty if the text is anything else. It is a last resort: the end
    of an answer in invalid JSON is guessed."""
    text = drop_reasoning(text)
    begin = _FINAL_BEGINS.search(text)
    if begin and not isinstance(read := next(read_objects(text[begin.start("object") :])), JsonRefusal):
        return (_find_answer(read[0]) or "").strip()
    end = _FINAL_ENDS.search(text, begin.end()) if begin else None
    if begin is None or end is None:
        return ""
    written = text[begin.end() : end.start()]
    read = read_json(f'"{_ESCAPE_OR_BARE.sub(_escape, written)}"')
    return read.value.strip() if isinstance(read, JsonValue) and isinstance(read.value, str) else ""


def _escape(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > 1 else f"\\{found[0]}"


def has_own_markup(text: str) -> bool:
    """Whether a text contains our markup, or that of other forms of calls, apart from examples in code."""
    if OWN_MARKUP.search(text) is None:
        return False
    return OWN_MARKUP.search(_read_outside_code(split_code(text.strip()))) is not None


def _read_outside_code(spans: Sequence[Span]) -> str:
    """The text without its code, which is no example if it is one fence with nothing around it."""
    match spans:
        case [Span(text, "fence")]:
            return unfence(text)
        case _:
            return "".join(span.text if span.kind == "text" else "`" for span in spans)


def _breaks_off_in_action(text: str) -> bool:
    """Whether the text has an unreadable action that is no example; one in the fence at its end may be meant."""
    if _OWN_ACTION.search(text) is None:
        return False
    spans = split_code(text)
    text = _read_outside_code(spans) + (spans[-1].text if spans and spans[-1].kind == "fence" else "")
    action = _OWN_ACTION.search(text)
    return action is not None and not is_whole(text, action.start("object"))


def _drop_stray_tags(text: str) -> str:
    for _ in range(_MAX_STRAY_TAGS):
        if start := _STRAY_START.match(text):
            text = text[start.end() :]
        if end := _STRAY_END.search(text, max(0, len(text) - _MAX_TAG_CHARS)):
            text = text[: end.start()].rstrip()
    return text


def _read_answer_field(text: str, *, otherwise: str) -> str:
    """The answer in an object; a JSON text without one is an answer itself, unless it has keys of an action."""
    read = read_json(text)
    fields = as_object(read.value) if isinstance(read, JsonValue) else None
    answer = None if fields is None else _find_answer(fields)
    if answer is not None:
        return answer.strip()
    return "" if has_own_keys(text) else otherwise


def _find_answer(fields: Mapping[str, object]) -> str | None:
    return next((each for key in ANSWER_KEYS if isinstance(each := fields.get(key), str)), None)

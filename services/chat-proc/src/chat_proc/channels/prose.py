"""Text that a model writes outside of actions. A reply without an action is the model's answer, so its text is streamed
as one from its first words on, unless it can still become something else."""

import re
from typing import Literal

from chat_proc.channels.citations import CitationReplacer
from chat_proc.models.json_values import FENCE_START, JsonValue, as_object, is_whole, read_json
from chat_proc.models.think_tags import drop_reasoning

SETTLED_CHARS = 16
"""So many characters that begin no markup, JSON or a fence of it are the beginning of an answer."""
_FENCE = "```"
_FENCE_START = re.compile(rf"{FENCE_START}\s*+")
_OWN_MARKUP = re.compile(
    r"(?<!`)</?(?:channel:|tool_calls?\b|function\b|function_calls?\b|invoke\b|think(?:ing)?\b|action\b|\|)",
    re.IGNORECASE,
)
"""An answer that names a tag puts it into backticks."""
_OWN_ACTION = re.compile(
    r'\n[ \t]*+(?P<object>\{\s*+(?:"action"\s*+:\s*+"(?:tool_call|call_tool|final_answer|complete|exit)"'
    r'|"tool_call"\s*+:\s*+\{))'
)
"""An action that begins a line of an answer; one inside a line is quoted."""
_MARKUP_BEGINNING = re.compile(
    r'`?</?[a-z_|:]{0,14}\Z|`\Z|\{\s{0,64}(?:"[a-z_]{0,12}"?\s{0,8}:?\s{0,8}"?[a-z_]{0,12})?\Z', re.IGNORECASE
)
_STRAY_TAG = r"<(?:channel:|final_)?answer>|</(?:channel:[a-z]{1,16}|(?:final_)?answer|think(?:ing)?)>"
_STRAY_START = re.compile(rf"\s*+(?:{_STRAY_TAG})\s*+", re.IGNORECASE)
_STRAY_END = re.compile(rf"(?:{_STRAY_TAG})\Z", re.IGNORECASE)
_MAX_STRAY_TAGS = 4
_MAX_TAG_CHARS = 32
_EXAMPLE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_OWN_KEYS = re.compile(r'"(?:action|tool_call|tool_id|tool|final_answer)"\s*:')
_ANSWER_KEYS = ("final_answer", "answer")


class ProseStream:
    """One answer in prose, as it arrives; `show` returns what can be shown of it.

    It begins `settled` if the model has said that it is the answer. Blanks around it are dropped.
    """

    def __init__(self, cite: CitationReplacer, *, settled: bool = False) -> None:
        self._cite = cite
        self._state: Literal["open", "settled", "no_prose"] = "settled" if settled else "open"
        self._waiting = ""
        self._raw: list[str] = []
        self._shown: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether it is not known yet what the text is."""
        return self._state == "open"

    @property
    def is_settled(self) -> bool:
        """Whether the text is an answer so far."""
        return self._state == "settled"

    @property
    def raw(self) -> str:
        """The answer as the model wrote it."""
        return "".join(self._raw)

    @property
    def shown(self) -> str:
        """The answer with its citations replaced."""
        return "".join(self._shown)

    @property
    def used_sids(self) -> tuple[int, ...]:
        return self._cite.used_sids

    def feed(self, text: str) -> str:
        """Return what can be shown now. The end of `text` is held back if it can still become markup."""
        if self._state == "no_prose":
            return ""
        self._waiting += text
        if self._state == "open":
            self._state = _judge_beginning(self._waiting.lstrip())
        if self._state != "settled":
            return ""
        if _OWN_MARKUP.search(self._waiting) or _OWN_ACTION.search(self._waiting):
            self._state = "no_prose"
            return ""
        waiting = self._waiting if self._raw else self._waiting.lstrip()
        settled = len(waiting.rstrip())
        if beginning := _MARKUP_BEGINNING.search(waiting):
            settled = min(settled, len(waiting[: beginning.start()].rstrip()))
        self._waiting = waiting[settled:]
        return self._show(waiting[:settled])

    def finish(self) -> str:
        """End the answer; returns the rest of it. A short text is an answer too."""
        if self._state == "open":
            self._state = "settled" if read_usable_text(self._waiting) == self._waiting.strip() else "no_prose"
        if self._state == "no_prose":
            return ""
        rest = self._waiting.rstrip() if self._raw else self._waiting.strip()
        self._waiting = ""
        return self._show(rest) + self._keep(self._cite.finish())

    def _show(self, raw: str) -> str:
        if not raw:
            return ""
        self._raw.append(raw)
        return self._keep(self._cite.feed(raw))

    def _keep(self, shown: str) -> str:
        if shown:
            self._shown.append(shown)
        return shown


def _judge_beginning(text: str) -> Literal["open", "settled", "no_prose"]:
    fence = _FENCE_START.match(text)
    inner = text[fence.end() :] if fence else text
    if inner[:1] in ("{", "[", "<"):
        return "no_prose"
    if len(text) < SETTLED_CHARS or not inner:
        return "open"
    return "settled"


def unfence(text: str) -> str:
    """The text inside a code fence, if the fence contains all of it."""
    text = text.strip()
    fence = _FENCE_START.match(text)
    end = len(text) - len(_FENCE)
    return text[fence.end() : end].strip() if fence and fence.end() <= end and text.endswith(_FENCE) else text


def has_own_keys(text: str) -> bool:
    """Whether a JSON text has keys of an action, rather than being an answer in JSON."""
    return _OWN_KEYS.search(text) is not None


def read_usable_text(text: str) -> str:
    """The text of a reply without an action that a person can read; empty if it is our own markup or JSON.

    Reasoning in tags, and tags without a partner around the text are dropped. Markup in code is part of an answer.
    """
    text = _drop_stray_tags(drop_reasoning(text).strip())
    inner = unfence(text)
    if inner[:1] in ("{", "["):
        return _read_answer_field(inner, otherwise=text)
    is_marked = has_own_markup(text) or (text.startswith("<") and has_own_keys(text))
    return "" if is_marked or _breaks_off_in_action(text) else text


def has_own_markup(text: str) -> bool:
    """Whether a text contains our markup, or that of other forms of calls, apart from examples in code."""
    return _OWN_MARKUP.search(_EXAMPLE.sub("", text) if unfence(text) == text.strip() else text) is not None


def _breaks_off_in_action(text: str) -> bool:
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
    answer = next((each for key in _ANSWER_KEYS if isinstance(each := (fields or {}).get(key), str)), None)
    if answer is not None:
        return answer.strip()
    return "" if has_own_keys(text) else otherwise

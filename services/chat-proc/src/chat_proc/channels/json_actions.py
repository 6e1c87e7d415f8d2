"""Actions that models write as JSON objects in their text: in the forms that our prompts describe, and in others that
they learned elsewhere, such as those of Hermes, LangChain and OpenAI."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from chat_proc.channels.actions import (
    CALL_KINDS,
    FINAL_KINDS,
    Action,
    ActionRefusal,
    ToolCall,
    read_params,
    try_build_action,
)
from chat_proc.channels.prose import ANSWER_KEYS, OWN_MARKUP, has_own_markup
from chat_proc.models.json_values import FENCE_START, JsonRefusal, as_object, read_objects
from chat_proc.models.markdown_code import split_code
from chat_proc.models.think_tags import drop_reasoning
from everturn.timeline.forms import CODE_PARAM

TOOL_KEYS = ("tool", "tool_id", "tool_name", "name")
ARGUMENT_KEYS = ("args", "arguments", "params", "parameters", "action_input", "input")
"""Keys that models use for the same, ours first."""

_FENCE = r"(?:`{3,}+|~{3,}+)"
_BEGINS_AS_ACTION = re.compile(rf"(?>(?:<[\w:|-]{{1,32}}>\s*+)?)(?>(?:{_FENCE}[\w+.-]*+\s*+)?)\[?\s*+\{{|`[^`]*`\Z")
"""An object at the beginning of a text, bare or in a tag, a fence or a list, or code that is all of it: an action in it
is not quoted."""
_BEGINS_OBJECT = re.compile(r'^[ \t]*+\[?\{\s*+["}]', re.MULTILINE)
_BEGINS_ACTION = re.compile(r"^[ \t]*+(?:<[\w:|-]{1,32}>\s*+)?\[?\{\s*+[\"}]", re.MULTILINE)
"""The same, or an object in a tag."""
_OPENS_FENCE = re.compile(rf"{FENCE_START}\s*\Z")
_CLOSERS = re.compile(rf"(?>(?:[\s}}\]]|{_FENCE}|</[\w:]{{1,32}}>)*)\Z")
"""What may follow the last object of a reply."""
_CONTINUES = re.compile(rf"\s*+(?:</|{OWN_MARKUP.pattern}|\[?\s*+\{{)", re.IGNORECASE)
"""The beginning of a text that is no prose."""
_BETWEEN = re.compile(rf"(?>(?:[\s,}}\]\[]|{_FENCE}[\w+.-]*+|</?[\w:|-]{{1,32}}>)*)")
"""What may be between two objects that belong together."""


def read_json_action(fields: Mapping[str, object], names: Mapping[str, str]) -> Action | None:
    """The action that an object describes; None if it is another object. Its tool need not exist. `names` are the tool
    ids by the names under which tools are declared, which models also write."""
    if (action := try_build_action(fields)) is not None:
        return _resolve(action, names)
    call = as_object(fields.get("tool_call")) or as_object(fields.get("function")) or fields
    kind, written_kind = _read_kind(fields), fields.get("action")
    tool = next((call[name] for name in TOOL_KEYS if isinstance(call.get(name), str) and call[name]), None)
    if tool is None and kind and kind not in FINAL_KINDS | CALL_KINDS:
        tool = written_kind
    answers = (*ANSWER_KEYS, "action_input") if kind in FINAL_KINDS else ANSWER_KEYS
    written = [each for name in answers if isinstance(each := fields.get(name), str) and each.strip()]
    if written and (kind in FINAL_KINDS or tool is None):
        return Action("complete", final_answer=written[0])
    if not isinstance(tool, str) or kind in FINAL_KINDS:
        return None
    given = [call[name] for name in ARGUMENT_KEYS if name in call]
    if not kind and not given:
        return None
    params = read_params(given[0] if given else None)
    return None if params is None else _resolve(Action("call_tool", tool_call=ToolCall(tool, params)), names)


def find_json_actions(text: str, names: Mapping[str, str]) -> tuple[Action | ActionRefusal, ...]:
    """The actions that a reply contains as JSON, in order; empty if it has none. JSON that may be meant as part of an
    answer is not an action, nor is anything inside or after an object that can't be read; why it can't comes last.

    A call without our key "action" has to name a tool that exists. In prose, actions begin a line and end the reply,
    without other text between them: a model may quote one that it has read. An example in a code fence at the end
    counts only with that key. In a reply with other markup, examples in inline code, or in a fence that prose follows,
    do not count; a fence that begins the reply is no example.
    """
    text = drop_reasoning(text).strip()
    in_prose = not _BEGINS_AS_ACTION.match(text) and not has_own_markup(text)
    if in_prose:
        begin = _BEGINS_OBJECT.search(text)
        text = text[begin.start() :] if begin else ""
    read = list(read_objects(text))
    examples = deque[range]() if in_prose else deque(_find_examples(text, read))
    found, refused, end = list[Mapping[str, object]](), list[ActionRefusal](), 0
    for each in read:
        if isinstance(each, JsonRefusal):
            refused.append(_refuse(each))
            break
        start = text.index("{", end)
        if in_prose and not _BETWEEN.fullmatch(text, end, start):
            found.clear()
        while examples and examples[0].stop <= start:
            examples.popleft()
        if not examples or start not in examples[0]:
            found.append(each[0])
        end = each[1]
    closers = _CLOSERS.match(text, end)
    if in_prose and (refused or not closers):
        return ()
    is_example = in_prose and closers is not None and any(mark in closers[0] for mark in ("```", "~~~"))
    actions = [
        action
        for fields in found
        if (action := read_json_action(fields, names)) is not None
        and _is_meant(fields, action, names, is_example=is_example)
    ]
    return (*actions, *refused) if actions else ()


def read_text_before_actions(text: str) -> str:
    """The text of a reply before the line on which its first action begins, without the fence that opens there."""
    begin = _BEGINS_ACTION.search(text)
    return _OPENS_FENCE.sub("", text[: begin.start()] if begin else "").strip()


def take_program(action: Action, code_tools: frozenset[str]) -> tuple[Action, str | None]:
    """A call whose program is one of its parameters, as a call without it, and the program."""
    call = action.tool_call
    if call is None or call.tool_id not in code_tools or not isinstance(code := call.params.get(CODE_PARAM), str):
        return action, None
    params = {name: value for name, value in call.params.items() if name != CODE_PARAM}
    return replace(action, tool_call=ToolCall(call.tool_id, params)), code


def _find_examples(text: str, read: Iterable[tuple[Mapping[str, object], int] | JsonRefusal]) -> list[range]:
    """Where a text has inline code, unless that is all of it, and fences that prose follows, but not the beginning.
    Backticks inside of the objects that were `read` from it are no code."""
    parts, end = list[str](), 0
    for each in read:
        if not isinstance(each, JsonRefusal):
            begin = text.index("{", end)
            parts += [text[end:begin], "{" * (each[1] - begin)]
            end = each[1]
    text = "".join((*parts, text[end:]))
    spans, begin = split_code(text), len(text)
    examples: list[range] = []
    is_before_prose = False
    for span in reversed(spans):
        begin, end = begin - len(span.text), begin
        is_quoted = span.kind == "fence" and begin > 0 and is_before_prose
        if is_quoted or (span.kind == "inline" and len(spans) > 1):
            examples.append(range(begin, end))
        if span.kind != "fence" and not span.text.isspace():
            is_before_prose = span.kind == "inline" or _CONTINUES.match(span.text) is None
    return examples[::-1]


def _refuse(refusal: JsonRefusal) -> ActionRefusal:
    sentence = f"A further JSON object of the reply can't be read ({refusal.detail}). Write it again, as valid JSON."
    return ActionRefusal(refusal.fault, sentence)


def _is_meant(fields: Mapping[str, object], action: Action, names: Mapping[str, str], *, is_example: bool) -> bool:
    kind = _read_kind(fields)
    if action.tool_call is None or kind in CALL_KINDS:
        return kind in FINAL_KINDS | CALL_KINDS
    return action.tool_call.tool_id in names.values() and (bool(kind) or not is_example)


def _read_kind(fields: Mapping[str, object]) -> str:
    """What the object says it is; LangChain's "Final Answer" is our final_answer."""
    kind = fields.get("action")
    return kind.strip().lower().replace(" ", "_") if isinstance(kind, str) else ""


def _resolve(action: Action, names: Mapping[str, str]) -> Action:
    call = action.tool_call
    if call is None or call.tool_id not in names:
        return action
    return replace(action, tool_call=ToolCall(names[call.tool_id], call.params))

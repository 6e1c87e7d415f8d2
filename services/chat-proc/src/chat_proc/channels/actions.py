"""Reads one action: its texts while it is being written, then the checked `Action` or why it is none."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast, get_args

from chat_proc.channels.jsontext.fields import FieldPiece, JsonFieldReader, Path
from chat_proc.channels.jsontext.values import JsonFault, JsonRefusal, read_json
from everturn.model.llm.decisions import Action, ActionKind, ProblemKind, ToolCall

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
    "not_json": "The action channel does not hold valid JSON ({detail}). Write the action again as one JSON object.",
    "two_objects": "One action channel contains one JSON object, but a second value follows: {detail} "
    "Open a new action channel for each action.",
    "text_after_object": "Text follows the JSON object of the action: {detail} "
    "Put nothing but the object in the channel.",
    "duplicate_key": 'The action has the key "{detail}" twice in one object. Write each key once.',
    "not_a_number": "The action contains {detail}, which is not a JSON number. Use a finite number or null.",
    "number_too_large": "The number {detail} in the action is too large. Write it as a string if its digits matter.",
    "too_deep": "The action is nested too deeply ({detail}). Make its parameters flatter.",
}


@dataclass(frozen=True, slots=True)
class ActionRefusal:
    """Why a text is no action; `sentence` is for the model."""

    kind: ProblemKind
    sentence: str


class ActionReader:
    """Feed it the text of one action channel; `finish` gives the last field pieces and the action.

    Streams the strings at `STREAMED_PATHS` and all strings directly in `tool_call.params`.
    """

    def __init__(self) -> None:
        self._fields = JsonFieldReader(_is_streamed, strings_only=True)
        self._written: list[str] = []

    def feed(self, text: str) -> list[FieldPiece]:
        """What `text` adds to the streamed fields."""
        self._written.append(text)
        return self._fields.feed(text)

    def finish(self) -> tuple[list[FieldPiece], Action | ActionRefusal]:
        """The text is over."""
        return self._fields.finish(), read_action("".join(self._written))


def read_action(text: str) -> Action | ActionRefusal:
    """The action that `text` is, whatever its size and nesting; nothing is raised for what the model wrote."""
    read = read_json(text)
    if isinstance(read, JsonRefusal):
        return ActionRefusal(read.fault, _JSON_SENTENCES[read.fault].format(detail=read.detail))
    fields = _as_object(read.value)
    if fields is None:
        return ActionRefusal("not_an_object", f"An action is one JSON object of this form: {_SHAPE}")
    try:
        return _build_action(fields)
    except _Refused as refused:
        return refused.refusal


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
    call = _as_object(written)
    if call is None:
        raise _wrong_type("tool_call", "one object or null, never a list")
    tool_id = _read_text(call, "tool_id")
    if not tool_id:
        raise _Refused("missing_field", '"tool_call" has no "tool_id". Name the tool to call.')
    params = _as_object({} if call.get("params") is None else call["params"])
    if params is None:
        raise _wrong_type("tool_call.params", "an object")
    return ToolCall(tool_id, params)


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


def _as_object(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def _wrong_type(name: str, wanted: str) -> _Refused:
    return _Refused("wrong_type", f'"{name}" must be {wanted}.')

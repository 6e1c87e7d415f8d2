"""Reads small YAML files of authors as data: lists, mappings and strings, with the line of each value for messages.

Nothing is converted, so `version: 1.0` is the text "1.0". Aliases are refused, because a few of them can stand for
gigabytes. Parsing takes up to 2 ms for each KiB, so it belongs in a thread.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from everturn.core.errors import Invalid
from everturn.core.settings import name_place

MAX_YAML_BYTES: Final = 32 * 1024
MAX_DEPTH: Final = 8
"""Levels of lists and mappings."""
MAX_SHOWN_CHARS: Final = 200
"""Of a value in a message."""
_PLAIN: Final = re.compile(r"((?:[ ]*-)?[ ]*([\w-]{1,60}):[ ]+)([^\s'\"|>].*)")
"""A key and its value without quotes."""
_UNSTORABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""What escapes such as "\\0" can produce, and neither the database nor a prompt can contain."""

_MESSAGES: Final[Mapping[str, str]] = {
    "dict_type": "must be a mapping of keys to values",
    "extra_forbidden": "is not a known field",
    "int_parsing": "must be a whole number",
    "list_type": "must be a list",
    "missing": "is missing",
    "model_type": "must be a mapping of keys to values",
    "string_too_short": "must not be empty",
    "string_type": "must be a text",
    "tuple_type": "must be a list",
}
"""Ends of sentences in place of Pydantic's, by the type of the problem."""

_yaml: Any = yaml
"""The functions of the library have no types."""

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class YamlFile:
    """Where a text came from: `name` is the path of the file, `first_line` the line at which the text begins in it."""

    name: str
    first_line: int = 1

    def refuse(self, line: int, problem: str) -> Invalid:
        """The error for a line of the text, counted from 0."""
        return Invalid(f"{self.name}, line {self.first_line + line}: {problem}")


def read_model(file: YamlFile, text: str, model: type[Model]) -> Model:
    """The text as a model. Raises Invalid with the file, the line and the problem."""
    if len(text.encode()) > MAX_YAML_BYTES:
        raise Invalid(f"{file.name}: its YAML is longer than {MAX_YAML_BYTES // 1024} KiB.")
    lines: dict[Place, int] = {}
    try:
        _check_events(text, file)
        node: yaml.Node | None = _yaml.compose(text, Loader=yaml.CSafeLoader)
        value = None if node is None else _build(node, (), lines, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark else 0
        if (quoted := _find_missing_quotes(text, line, file)) is not None:
            raise file.refuse(*quoted) from error
        problem = " ".join(part for part in (error.context, error.problem) if part)
        if "mapping values are not allowed" in problem:
            problem = 'a text with a colon needs quotes, as in description: "Use it when: ..."'
        raise file.refuse(line, f"this is not valid YAML: {problem}.") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        problem = " ".join(str(error).split())[:200]
        raise file.refuse(0, f"this is not valid YAML: {problem}.") from error
    if not isinstance(value, dict):
        raise file.refuse(0, "this must be a mapping of keys to values, such as name: value.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place: Place = first["loc"]
        raise file.refuse(_find_line(place, lines), _describe(place, first["type"], first["msg"])) from error


def _find_missing_quotes(text: str, line: int, file: YamlFile) -> tuple[int, str] | None:
    """The line whose value only lacks quotes, and what to write, if the text is valid with them: a colon with a space,
    a `#` or a character such as `[`, `@` or `%` means something in YAML. `line` is where the parser gave up."""
    lines = text.split("\n")
    for number in (line, line - 1):
        written = _PLAIN.fullmatch(lines[number].rstrip()) if 0 <= number < len(lines) else None
        if written is None:
            continue
        quoted = json.dumps(written[3], ensure_ascii=False)
        try:
            _check_events("\n".join((*lines[:number], f"{written[1]}{quoted}", *lines[number + 1 :])), file)
        except (yaml.YAMLError, Invalid):
            continue
        why = "contains a colon" if ": " in written[3] or written[3].endswith(":") else f"begins with {written[3][0]}"
        shown = quoted if len(quoted) <= MAX_SHOWN_CHARS else f'{quoted[:MAX_SHOWN_CHARS]}..."'
        return number, f"the value of {written[2]} {why}, so it needs quotes. Write {written[2]}: {shown}."
    return None


def _describe(place: Place, kind: str, message: str) -> str:
    name = name_place(place)
    if kind == "string_too_long":
        return f"{name} is too long: {message[0].lower()}{message[1:]}."
    if kind == "value_error":
        said = message.removeprefix("Value error, ")
        return f"{name} {said}" if name else said
    return f"{name} {_MESSAGES.get(kind, f'is invalid: {message}')}."


def _find_line(place: Place, lines: Mapping[Place, int]) -> int:
    """The line of the value, or of the innermost value around it that is written in the file."""
    return next((lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), 0)


def _check_events(text: str, file: YamlFile) -> None:
    """Raise Invalid for aliases, and for a depth that could exhaust the stack when the text is composed."""
    depth = 0
    events: Iterator[yaml.Event] = _yaml.parse(text, Loader=yaml.CSafeLoader)
    for event in events:
        line = event.start_mark.line
        match event:
            case yaml.AliasEvent():
                raise file.refuse(line, "aliases such as *name are not allowed.")
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                depth += 1
                if depth > MAX_DEPTH:
                    raise file.refuse(line, f"at most {MAX_DEPTH} levels of lists and mappings are allowed.")
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                depth -= 1
            case _:
                """The others have no depth."""


def _build(node: yaml.Node, place: Place, lines: dict[Place, int], file: YamlFile) -> object:
    lines.setdefault(place, node.start_mark.line)
    match node:
        case yaml.ScalarNode():
            if _UNSTORABLE.search(node.value):
                raise file.refuse(node.start_mark.line, "a text must not contain control characters.")
            return node.value
        case yaml.SequenceNode():
            return [_build(item, (*place, number), lines, file) for number, item in enumerate(node.value)]
        case yaml.MappingNode():
            built: dict[str, object] = {}
            for key, item in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise file.refuse(key.start_mark.line, "a key must be a text.")
                name = str(key.value)
                if name in built:
                    raise file.refuse(key.start_mark.line, f"{name} is given twice.")
                lines[*place, name] = key.start_mark.line
                built[name] = _build(item, (*place, name), lines, file)
            return built
        case _:
            raise file.refuse(node.start_mark.line, "this kind of value is not supported.")

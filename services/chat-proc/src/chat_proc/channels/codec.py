"""The forms in which models act: what a prompt says, which tools are declared, and how a reply is read.

The timeline does not depend on the codec: each turn can have another one, and a turn that was begun under one can be
continued under another.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast

from chat_proc.catalog.tool import ToolSpec
from chat_proc.channels.actions import Decision
from chat_proc.channels.decision_problems import DecisionLimits
from chat_proc.channels.decision_stream import DecisionStream
from chat_proc.channels.json_stream import JsonStream
from chat_proc.channels.native_stream import NativeStream
from chat_proc.channels.pieces import DecisionPiece
from everturn.core.settings import BadConfig
from everturn.models.port import CodecName, FinishReason, ModelTraits, ToolDeclaration
from everturn.timeline.forms import CODE_PARAM
from everturn.timeline.sources import Source

DEFAULT_ROUNDS: Mapping[CodecName, int] = {"channels": 15, "native": 50, "json": 50}
"""The rounds of a turn if the operator sets no number."""
DAG_ROUNDS = 100
"""The same for a turn that is a plan of steps: five for each of twenty."""

MAX_NAME_CHARS = 64
"""The limit of OpenAI's and Anthropic's APIs for the name of a tool."""

MAX_NESTING = 8
"""References within references that a schema of parameters is expanded to."""


class CodecReader(Protocol):
    """Reads one reply. Feed it the text, then call `finish` once."""

    @property
    def is_over(self) -> bool:
        """Whether no further text can change the result, so that the generation can be stopped."""
        ...

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return the pieces that the next text adds."""
        ...

    def finish(
        self, reason: FinishReason = "stop", *, interrupted: bool = False
    ) -> tuple[list[DecisionPiece], Decision]:
        """End the reply; returns the last pieces, and the decision.

        `interrupted` means that the reply did not come to its end: a person stopped it, or its provider failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Codec:
    """How a model acts in the turns of a kit. `tools` are declared to it. `tool_ids` are the ids of all tools by the
    names under which the codec `native` declares them: models write these names under other codecs too."""

    name: CodecName
    system_prompt: str
    closing_prompt: str
    """Asks for the answer when a cap is reached, which replaces `{cap}`."""
    tools: tuple[ToolDeclaration, ...] = ()
    tool_ids: Mapping[str, str] = field(default_factory=dict[str, str])

    def open_reader(
        self, limits: DecisionLimits, sources: Iterable[Source] = (), *, closing: bool = False
    ) -> CodecReader:
        """A reader of one reply. Of a `closing` reply, only the answer counts."""
        match self.name:
            case "channels":
                return DecisionStream(names=self.tool_ids, sources=sources, limits=limits)
            case "native":
                return NativeStream(names=self.tool_ids, sources=sources, limits=limits, ignores_calls=closing)
            case "json":
                return JsonStream(names=self.tool_ids, sources=sources, limits=limits, ignores_calls=closing)


def build_native_names(tool_ids: Collection[str]) -> dict[str, str]:
    """The tool ids by the names under which they are declared: providers allow no dots in names. Raises BadConfig."""
    names = {encode_name(tool_id): tool_id for tool_id in tool_ids}
    if len(names) < len(tool_ids):
        raise BadConfig("Two tools have the same name once their dots are replaced by two underscores. Rename one.")
    if too_long := [name for name in names if len(name) > MAX_NAME_CHARS]:
        raise BadConfig(f"The tool name {too_long[0]} has more than {MAX_NAME_CHARS} characters. Shorten it.")
    return names


def choose_codec(setting: CodecName | Literal["auto"], traits: ModelTraits) -> CodecName:
    """The codec for a model; `auto` leaves the choice to its card."""
    if setting == "auto":
        return "native" if "tool_call" in traits.abilities else "json"
    return setting


def encode_name(tool_id: str) -> str:
    """The name under which a tool is declared."""
    return tool_id.replace(".", "__")


def declare_tools(specs: Sequence[ToolSpec]) -> tuple[ToolDeclaration, ...]:
    """The declarations of the tools, with their guides. Raises BadConfig."""
    names = build_native_names([spec.tool_id for spec in specs])
    return tuple(_declare(name, spec) for name, spec in zip(names, specs, strict=True))


def _declare(name: str, spec: ToolSpec) -> ToolDeclaration:
    return ToolDeclaration(name, f"{spec.summary}\n\n{spec.guide.strip()}", build_parameters(spec))


def build_parameters(spec: ToolSpec) -> dict[str, object]:
    """The JSON schema of a tool's parameters, without references and generated titles, which some servers reject and
    no model needs. The program of a tool that takes one is the last parameter."""
    schema = spec.params.model_json_schema()
    definitions = cast("dict[str, object]", schema.pop("$defs", {}))
    plain = cast("dict[str, object]", _inline(schema, definitions))
    plain.pop("description", None)
    properties = cast("dict[str, object]", plain.setdefault("properties", {}))
    if spec.takes_code:
        properties[CODE_PARAM] = {"type": "string", "description": "The text of the program, unchanged."}
        plain["required"] = [*cast("list[str]", plain.get("required", [])), CODE_PARAM]
    return plain


def _inline(value: object, definitions: Mapping[str, object], depth: int = 0) -> object:
    if isinstance(value, list):
        return [_inline(each, definitions, depth) for each in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    reference = fields.get("$ref")
    if isinstance(reference, str):
        # A type that contains itself ends here as any object.
        target = definitions.get(reference.rpartition("/")[2], {}) if depth < MAX_NESTING else {"type": "object"}
        fields = {**cast("dict[str, object]", target), **{key: each for key, each in fields.items() if key != "$ref"}}
        return _inline(fields, definitions, depth + 1)
    return {
        key: {name: _inline(each, definitions, depth) for name, each in cast("dict[str, object]", part).items()}
        if key == "properties" and isinstance(part, dict)
        else _inline(part, definitions, depth)
        for key, part in fields.items()
        if not (key == "title" and isinstance(part, str))
    }

"""What the author of a bundle writes in `bundle.toml`, and an operator in the tables of the configuration file that
override it."""

import json
import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)

from chat_proc.bundles.host.section import HostSection
from chat_proc.bundles.policy import BuiltinToolsSection, PolicyRule
from chat_proc.catalog.mcp_servers import MAX_SERVERS, McpServer, McpServers
from chat_proc.git import BranchPattern, GitRef, RepositoryUrl, TokenReference
from chat_proc.knowledge.config import KnowledgeSpaces
from chat_proc.skills.reader import MAX_SPECS, SkillSpec
from everturn.bundles.registry import BUILT_IN
from everturn.core.errors import Invalid
from everturn.core.identity import Role
from everturn.core.settings import explain_errors, suggest_key
from everturn.execution.profiles import ProfileName
from everturn_sdk.descriptors import ToolsEntry

MAX_ROUNDS: Final = 200
MAX_INSTRUCTIONS_CHARS: Final = 32_000
"""About 8,000 tokens: a third of the smallest context that a model may have."""
MAX_MANIFEST_BYTES: Final = 256 * 1024
MAX_SETTINGS_BYTES: Final = 64 * 1024
MAX_SETTINGS_DEPTH: Final = 32
"""Tables and lists within each other. The reader of stored versions has a limit of 200 for the whole manifest."""
MAX_KEY_PARTS: Final = 64
"""Of one key, such as the two of `react.codec`. The time for parsing a key grows with the square of its parts."""
MAX_PROBLEMS: Final = 20
"""How many problems of one manifest are explained: finding the line of each takes milliseconds."""
MAX_NAMED_KEYS: Final = 15
"""Of the table with an unknown key. More of them say nothing to a reader."""
_TABLES: Final = ("models", "react", "config", "limits", "settings", "host", "builtin_tools", "workspace", "coding")
MANIFEST: Final = "bundle.toml"
INSTRUCTIONS: Final = "instructions.md"

CodecSetting = Literal["channels", "native", "json", "auto"]
"""`auto` leaves the choice to the card of the model."""
WorkspaceMode = Literal["custom", "git"]
ModelRoleName = Literal["decision", "title", "summary", "synthesis", "selection", "fast", "reasoning"]
BundleId = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]

CodingAgentName = Annotated[str, StringConstraints(max_length=300, pattern=r"^(claude-code|acp:[^\x00-\x1f\x7f]+)?$")]
"""`claude-code`, or `acp:` and the command of an agent that speaks the Agent Client Protocol."""

_LONG_KEY: Final = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.){{0,99}}"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}"""
)
_TOML_LINE: Final = re.compile(r"at line (\d{1,9}), ")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_SYMBOL: Final = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
    "[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"
)
"""A symbol with its style, tone of skin, or the letters of a flag."""
_EMOJI: Final = re.compile(rf"[0-9#*]\ufe0f?\u20e3|[\U0001f1e6-\U0001f1ff]{{2}}|{_SYMBOL}(?:\u200d{_SYMBOL}){{0,8}}+")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, or likely wrong, with a bundle. `file` is relative and empty for the whole folder; `line` counts
    from 1; `key` is a place in the manifest, such as `react.codec`. `message` has no full stop."""

    message: str
    file: str = ""
    line: int | None = None
    key: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}, line {self.line}"
        return f"{': '.join(part for part in (place, self.key, self.message) if part)}."


class BadBundle(Invalid):
    """The content of a bundle can't be used; the message says where and why."""

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(Problem(each.rstrip(".")) if isinstance(each, str) else each for each in problems)
        super().__init__(" ".join(map(str, problems)))


def _check_line(text: str) -> str:
    if "\n" in text or _CONTROL.search(text):
        raise ValueError("It must be one line without control characters")
    return unicodedata.normalize("NFC", text.strip())


def _check_text(text: str) -> str:
    if _CONTROL.search(text.replace("\r\n", "\n")):
        raise ValueError("It must not contain control characters")
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").strip())


def _check_icon(text: str) -> str:
    icon = _check_line(text)
    letters = [char for char in icon if not unicodedata.category(char).startswith("M")]
    if not (len(letters) <= 2 and all(map(str.isalnum, letters))) and not _EMOJI.fullmatch(icon):
        raise ValueError("It must be one emoji, or one or two letters or digits")
    return icon


def _check_settings(settings: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    level: list[JsonValue] = [*settings.values()]
    for _ in range(MAX_SETTINGS_DEPTH):
        level = [each for value in level for each in _list_inner(value)]
    if level:
        raise ValueError(f"Tables and lists may be nested at most {MAX_SETTINGS_DEPTH} deep")
    if len(json.dumps(settings)) > MAX_SETTINGS_BYTES:
        raise ValueError(f"All settings together may have at most {MAX_SETTINGS_BYTES} bytes")
    return settings


def _list_inner(value: JsonValue) -> Sequence[JsonValue]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else ()


Title = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(_check_line)]
Description = Annotated[str, StringConstraints(max_length=500), AfterValidator(_check_line)]
Icon = Annotated[str, StringConstraints(max_length=16), AfterValidator(_check_icon)]
Starter = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(_check_line)]
Marker = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.-]{0,39}$")]
Instructions = Annotated[str, StringConstraints(max_length=MAX_INSTRUCTIONS_CHARS), AfterValidator(_check_text)]


class Section(BaseModel):
    """A table of a file that people write. An unknown key is an error: most likely a typing mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ReactConfig(Section):
    """`react`: the format of model replies, whether a turn is one loop or a plan of steps, whether a separate call
    writes the answers of turns that called tools, from how many tools on a turn chooses among them, and how many rounds
    it may have."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    codec: CodecSetting | None = None
    workflow: Literal["loop", "dag"] | None = None
    synthesis: Literal["auto", "on", "off"] | None = None
    tool_selection_threshold: int | None = Field(default=None, ge=0, le=1_000)
    max_iterations: int | None = Field(default=None, ge=1, le=MAX_ROUNDS)


class AgentConfig(Section):
    """`config` of a bundle."""

    react: ReactConfig = ReactConfig()


class TurnBudget(Section):
    """`limits`: what one turn may spend, and how long it waits for a person. The operator's own limits apply as well,
    so these can only be lower."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    wall_time_s: float | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, ge=1)
    cost_usd: float | None = Field(default=None, gt=0)
    output_tokens: int | None = Field(default=None, ge=256)
    approval_timeout_s: float | None = Field(default=None, gt=0)


class WorkspaceSection(Section):
    """`workspace`: with the mode `git`, the files of each turn continue those of the turns before, as commits. Then a
    project can begin with files of a `repository`, at the branch, tag or commit `ref`; `token` names the secret that
    it needs. `publish` names the branches to which the agent may push the project, with * for any characters."""

    mode: WorkspaceMode = "custom"
    repository: RepositoryUrl = ""
    ref: GitRef = ""
    token: TokenReference = ""
    publish: BranchPattern = ""

    @model_validator(mode="after")
    def check_repository(self) -> "WorkspaceSection":
        if self.mode != "git" and self.repository:
            raise ValueError('Only a workspace with the mode "git" can have a repository')
        if not self.repository and (self.ref or self.token or self.publish):
            raise ValueError("There is no repository for ref, token and publish")
        if self.publish and not self.token and self.repository.startswith("https:"):
            raise ValueError("Publishing needs a token")
        return self


class CodingSection(Section):
    """`coding`: an `agent` that works on the project in the sandbox, as a tool of this one. `profile` is the execution
    profile of its sandbox, which has the model server as its network; `instructions` are added to its own."""

    agent: CodingAgentName = ""
    profile: ProfileName = "coding"
    instructions: Instructions = ""

    @model_validator(mode="after")
    def check_agent(self) -> "CodingSection":
        if not self.agent and self.model_fields_set:
            raise ValueError('Name the agent: "claude-code", or "acp:" and the command of another one')
        return self


class BundleProps(Section):
    """The properties of an agent, all optional: what people see of it, who may use it, and how its turns run."""

    title: Title | None = None
    description: Description = ""
    icon: Icon = ""
    starters: tuple[Starter, ...] = Field(default=(), max_length=8)
    roles: tuple[Role, ...] = ()
    instructions: Instructions = ""
    models: Mapping[ModelRoleName, str] = {}
    react: ReactConfig = ReactConfig()
    config: AgentConfig = AgentConfig()
    limits: TurnBudget = TurnBudget()
    skills: tuple[SkillSpec, ...] | None = Field(default=None, max_length=MAX_SPECS)
    """None if nothing is said about them, which is not the same as an empty list."""
    execution_profile: ProfileName | None = None
    """The operator's profile with which programs run; None for those that the operator offers."""
    user_memory: Literal["on", "off"] | None = None
    settings: Annotated[Mapping[str, JsonValue], AfterValidator(_check_settings)] = {}
    host: HostSection = HostSection()
    tools: tuple[ToolsEntry, ...] = Field(default=(), max_length=100)
    builtin_tools: BuiltinToolsSection = BuiltinToolsSection()
    workspace: WorkspaceSection = WorkspaceSection()
    coding: CodingSection = CodingSection()
    policy: tuple[PolicyRule, ...] = Field(default=(), max_length=100)
    knowledge: KnowledgeSpaces = ()
    markers: tuple[Marker, ...] = Field(default=(), max_length=20)
    """Where clients show texts of the workflow, beside the markers that all of them know."""
    mcp: McpServers = Field(default_factory=dict[str, McpServer], max_length=MAX_SERVERS)

    @property
    def agent(self) -> ReactConfig:
        """For each key the value of `config.react`, otherwise that of `react`."""
        return merge_react(self.react, self.config.react)


class Manifest(BundleProps):
    """The whole of `bundle.toml`."""

    id: BundleId

    @model_validator(mode="after")
    def check_project(self) -> "Manifest":
        if self.coding.agent and self.workspace.mode != "git":
            raise ValueError('A coding agent works on a project: set the mode of the workspace to "git"')
        return self

    @property
    def shown_title(self) -> str:
        """What people see: the title, otherwise the id. The built-in agent has its own."""
        return self.title or (BUILT_IN.title if self.id == BUILT_IN.id else self.id)

    def override(self, props: BundleProps) -> "Manifest":
        """The manifest with what an operator has set; tables are merged key by key. Raises BadBundle if the result is
        no manifest, because what is set contradicts what the author wrote."""
        chosen = props.model_dump(exclude_unset=True, include=set(BundleProps.model_fields))
        merged = _merge(self.model_dump(exclude_unset=True), chosen)
        try:
            return Manifest.model_validate(merged)
        except ValidationError as error:
            problems = ", ".join(explain_errors(error)[:MAX_PROBLEMS])
            raise BadBundle(f"With [bundles.{self.id}] of the configuration file: {problems}.") from error

    def write(self) -> str:
        """As JSON, the same for the same manifest."""
        return self.model_dump_json(exclude_unset=True)


def merge_react(*sections: ReactConfig) -> ReactConfig:
    """For each key the value of the last section that sets it."""
    found: dict[str, object] = {}
    for section in sections:
        found |= section.model_dump(exclude_none=True)
    return ReactConfig.model_validate(found)


def read_manifest(data: bytes, *, instructions: bytes | None = None) -> Manifest:
    """The manifest, with the content of `instructions.md`. Raises BadBundle with all problems, each with its line."""
    text = _decode(MANIFEST, data, MAX_MANIFEST_BYTES)
    if (found := _LONG_KEY.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise BadBundle(Problem(f"A key may have at most {MAX_KEY_PARTS} parts", MANIFEST, line))
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadBundle(explain_syntax(MANIFEST, error)) from error
    except RecursionError as error:
        raise BadBundle(Problem("Tables or lists are nested too deep", MANIFEST)) from error
    except ValueError as error:
        # Such as a number of more than 4,300 digits.
        raise BadBundle(Problem(f"A value can't be read: {error}", MANIFEST)) from error
    if instructions is not None:
        if "instructions" in table:
            raise BadBundle(f"Write the instructions either in {INSTRUCTIONS} or in {MANIFEST}, not in both.")
        written = _decode(INSTRUCTIONS, instructions, 4 * MAX_INSTRUCTIONS_CHARS)
        if len(written) > MAX_INSTRUCTIONS_CHARS:
            raise BadBundle(f"{INSTRUCTIONS} has {len(written)} characters; {MAX_INSTRUCTIONS_CHARS} are allowed.")
        table["instructions"] = written
    try:
        return Manifest.model_validate(table)
    except ValidationError as error:
        raise BadBundle(*_explain(text, error)) from error


def explain_syntax(file: str, error: tomllib.TOMLDecodeError) -> Problem:
    """What is wrong with a file that is not valid TOML."""
    text = str(error).replace("Illegal character '\\n'", "A text has no closing quote")
    text = text.replace("Invalid value", "Invalid value; a text needs quotes")
    place = _TOML_LINE.search(text)
    return Problem(_TOML_LINE.sub("at ", text), file, int(place[1]) if place else None)


def _decode(name: str, data: bytes, max_bytes: int) -> str:
    if len(data) > max_bytes:
        raise BadBundle(f"{name} is longer than {max_bytes} bytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadBundle(Problem("The text is not valid UTF-8", name, line)) from error


def _explain(text: str, error: ValidationError) -> list[Problem]:
    found = error.errors(include_input=False, include_url=False)
    problems: list[Problem] = []
    for each, explained in zip(found[:MAX_PROBLEMS], explain_errors(error), strict=False):
        place = each["loc"]
        line = find_line(text, place)
        file = INSTRUCTIONS if place[:1] == ("instructions",) and line is None else MANIFEST
        key, _, message = explained.partition(": ") if place else ("", "", explained)
        if each["type"] == "extra_forbidden":
            message = _explain_key(str(place[-1]), _list_keys(place[:-1]))
        message = _suggest(place, each["type"]) or message
        problems.append(Problem(message, file, line, key))
    problems.sort(key=lambda problem: problem.line or 0)
    if len(found) > MAX_PROBLEMS:
        problems.append(Problem(f"There are {len(found) - MAX_PROBLEMS} more problems", MANIFEST))
    return problems


def _explain_key(key: str, known: Sequence[str]) -> str:
    others = (
        f"The keys here are: {', '.join(known)}" if len(known) <= MAX_NAMED_KEYS else "Remove it or correct its name"
    )
    return suggest_key(key, known) or f"Unknown key. {others}"


def _list_keys(place: Sequence[str | int]) -> list[str]:
    """The keys that the table at this place can have."""
    models: list[type[BaseModel]] = [Manifest]
    for part in place:
        fields = [model.model_fields[part] for model in models if isinstance(part, str) and part in model.model_fields]
        # Neither an index, nor a name that the author has chosen, nor the tag of a union leads to another model.
        models = [each for field in fields for each in _list_models(field.annotation)] or models
    return sorted({key for model in models for key in model.model_fields})


def _list_models(annotation: object) -> list[type[BaseModel]]:
    """The models of values with this annotation, and of those in its lists and mappings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _list_models(argument)]


def _suggest(place: Sequence[str | int], kind: str) -> str | None:
    """What to write in place of a likely mistake."""
    match (*place, kind):
        case ("models", str(role), "[key]", "literal_error"):
            return _explain_key(role, get_args(ModelRoleName))
        case ("mcp", "dict_type"):
            return "Write [mcp.NAME], with one bracket, where NAME is your name for the server"
        case (str(key), "dict_type" | "model_type") if key in _TABLES:
            return f"Write [{key}], with one bracket, and its keys below it: there is only one"
        case ("tools" | "policy" as key, "tuple_type"):
            return f"Write [[{key}]], with two brackets: there can be several"
        case ("mcp", _, "model_type"):
            return "Write the keys of a server below [mcp.NAME], where NAME is your name for it"
        case ("mcp", _, "[key]", "string_pattern_mismatch"):
            return "The name of a server begins with a letter and has at most 20 lower-case letters, digits and _"
        case ("mcp", _, "command", "string_type"):
            return "Write only the program as a text, and what follows it into args"
        case _:
            return None


def find_line(text: str, place: Sequence[str | int]) -> int | None:
    """The line of the longest beginning of this place that the text has as a table or a key. A number in the place is
    that of a table `[[...]]`; without one the first is meant."""
    found: dict[tuple[str | int, ...], int] = {}
    counts: dict[str, int] = {}
    table: tuple[str | int, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if (header := line.lstrip()).startswith("["):
            key = _split_key(line.partition("#")[0].strip().strip("[]"))
            if header.startswith("[[") and len(key) == 1:
                counts[key[0]] = counts.get(key[0], -1) + 1
            table = (key[0], counts[key[0]], *key[1:]) if key[0] in counts else key
            _note(found, table, number)
        elif "=" in line:
            _note(found, (*table, *_split_key(line.partition("=")[0])), number)
    if tuple(place[:2]) not in found:
        # One table in place of several.
        place = [part for part in place if isinstance(part, str)]
    wanted = (tuple(place[:length]) for length in range(len(place), 0, -1))
    return next((found[beginning] for beginning in wanted if beginning in found), None)


def _note(found: dict[tuple[str | int, ...], int], key: tuple[str | int, ...], number: int) -> None:
    for length in range(1, len(key) + 1):
        found.setdefault(key[:length], number)
    if len(key) > 1 and isinstance(key[1], int):
        _note(found, (key[0], *key[2:]), number)


def _split_key(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip('"') for part in key.split(".", MAX_KEY_PARTS))


def _merge(old: Any, new: Any) -> Any:
    """`new`, with what only `old` has in tables."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    earlier, later = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
    return {**earlier, **{key: _merge(earlier.get(key), value) for key, value in later.items()}}

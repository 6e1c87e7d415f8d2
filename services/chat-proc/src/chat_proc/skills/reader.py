"""Reads the skills of a bundle: folders of the Agent Skills standard, with our `tools.yaml` and `sources.yaml`.

Whatever is wrong is refused with the file, the line and what to do. Nothing of a skill is executed or imported. Reading
takes time in proportion to all files, and for YAML more, so it belongs in a thread.
"""

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from typing import Final, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from chat_proc.skills.model import INSTRUCTIONS, SKILLS_FOLDER, Skill, SkillFile, Skills, SkillTool, render_catalog
from chat_proc.skills.strict_yaml import YamlFile, read_model
from everturn.core.errors import Invalid
from everturn.core.refs import skill_ref
from everturn.core.settings import explain_errors
from everturn.execution.messages import check_relative_path
from everturn.timeline.sources import SourceDraft, normalize_url

DESCRIPTOR: Final = "skills_descriptor.py"
DESCRIPTOR_LIST: Final = "SKILLS_SPECS"
PLATFORM_NAMESPACE: Final = "public"

MAX_SKILLS: Final = 50
"""For one agent."""
MAX_CATALOG_CHARS: Final = 16_000
"""Characters of the lines about all skills in the prompt: about 4,000 tokens in each request."""
MAX_SKILL_CHARS: Final = 32_000
"""Characters of one SKILL.md, which is always shown whole: about 8,000 tokens."""
MAX_SKILL_FILES: Final = 200
"""Files of one skill: as many as a program gets."""
MAX_FILE_BYTES: Final = 5 * 1024 * 1024
MAX_PATH_CHARS: Final = 200
"""Characters of a file's path in its skill."""
MAX_FRONT_MATTER_LINES: Final = 200
MAX_DESCRIPTOR_BYTES: Final = 64 * 1024
MAX_SPECS: Final = 100
MAX_TOOLS: Final = 20
MAX_SOURCES: Final = 100
MAX_SOURCE_CHARS: Final = 4_000
"""Characters of the text of one source."""

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FENCE: Final = "---"


class SkillSpec(BaseModel):
    """One entry of `[[skills]]` or `SKILLS_SPECS`: a folder of the bundle, or all skills of a namespace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = Field(default=None, min_length=1, max_length=1024)
    """A skill's folder, or a folder of skills."""
    namespace: str | None = Field(default=None, min_length=1, max_length=64)
    """`public` for the skills of the platform, otherwise a folder under `skills/` of the bundle."""

    @model_validator(mode="after")
    def check_one(self) -> "SkillSpec":
        if (self.path is None) is (self.namespace is None):
            raise ValueError('Give either a path, such as "skills/support/refunds", or a namespace, such as "public".')
        return self


class _FrontMatter(BaseModel):
    """What is read of the fields. The others of the standard, and those of other agents, have no effect here; the model
    sees them with the rest of the file."""

    name: str = Field(min_length=1, max_length=64)
    description: str = Field(min_length=1, max_length=1024)

    @field_validator("name")
    @classmethod
    def check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!a} must consist of a-z, 0-9 and single hyphens between them.")
        return name

    @field_validator("description")
    @classmethod
    def join_lines(cls, description: str) -> str:
        """One line, for the prompt."""
        line = " ".join(description.split())
        if not line:
            raise ValueError("must not be empty.")
        return line


class _ToolRow(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,119}$")
    role: str = Field(default="", max_length=100)
    why: str = Field(default="", max_length=300)


class _ToolsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tools: list[_ToolRow] = Field(max_length=MAX_TOOLS)


class _SourceRow(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sid: int | None = Field(default=None, ge=1, le=9999)
    url: str = Field(max_length=2048)
    title: str = Field(default="", max_length=300)
    text: str = Field(default="", max_length=MAX_SOURCE_CHARS)
    published_time_iso: str | None = Field(default=None, max_length=40)

    @field_validator("url")
    @classmethod
    def check_url(cls, url: str) -> str:
        try:
            normalize_url(url)
        except Invalid:
            raise ValueError("must be an address that begins with https:// or http://.") from None
        return url


class _SourcesFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sources: list[_SourceRow] = Field(max_length=MAX_SOURCES)

    @model_validator(mode="after")
    def number_rows(self) -> "_SourcesFile":
        """Rows without a number get that of their position."""
        for number, row in enumerate(self.sources, 1):
            row.sid = number if row.sid is None else row.sid
        sids = [row.sid for row in self.sources]
        if twice := next((sid for sid in sids if sids.count(sid) > 1), None):
            raise ValueError(f"Two sources have the number {twice}.")
        return self


@dataclass(frozen=True, slots=True)
class _Named:
    """A spec, and where it is written."""

    where: str
    spec: SkillSpec


def read_skills(
    files: Mapping[str, bytes], specs: Sequence[SkillSpec] | None = None, platform: Sequence[Skill] = ()
) -> Skills:
    """The skills that a bundle offers. `files` are those of the bundle, `specs` the `[[skills]]` of its bundle.toml.

    If neither these nor skills_descriptor.py are there, it offers all skills in its own folder `skills`. Raises
    Invalid.
    """
    named = [_Named(f"bundle.toml, [[skills]] number {number}", spec) for number, spec in enumerate(specs or (), 1)]
    if DESCRIPTOR in files:
        if specs is not None:
            raise Invalid(f"Name the skills either in bundle.toml or in {DESCRIPTOR}, not in both.")
        named = _read_descriptor(files[DESCRIPTOR])
    elif specs is None and any(path.startswith(f"{SKILLS_FOLDER}/") for path in files):
        named = [_Named(SKILLS_FOLDER, SkillSpec(path=SKILLS_FOLDER))]
    found = _find_folders(files)
    folders: dict[str, None] = {}
    chosen: list[Skill] = []
    for each in named:
        if each.spec.namespace == PLATFORM_NAMESPACE:
            chosen += platform
        else:
            folders |= dict.fromkeys(_choose_folders(each, found))
    chosen += [_read_skill(folder, _files_below(files, folder)) for folder in folders]
    return _check_all(chosen)


def _check_all(skills: Sequence[Skill]) -> Skills:
    by_id: dict[str, Skill] = {}
    for skill in skills:
        earlier = by_id.setdefault(skill.id, skill)
        if earlier is not skill:
            raise Invalid(f"Two skills are named {skill.id}. Rename one of them, or move it into another namespace.")
    if len(by_id) > MAX_SKILLS:
        raise Invalid(f"There are {len(by_id)} skills; one agent can have at most {MAX_SKILLS}.")
    if (chars := len(render_catalog(by_id.values()))) > MAX_CATALOG_CHARS:
        raise Invalid(
            f"The descriptions of the skills have {chars} characters in total; at most {MAX_CATALOG_CHARS} are "
            "allowed, because each request contains them. Shorten them, or offer fewer skills."
        )
    return Skills(by_id.values())


def _read_descriptor(data: bytes) -> list[_Named]:
    """The list SKILLS_SPECS of skills_descriptor.py, which is parsed and not executed."""
    if len(data) > MAX_DESCRIPTOR_BYTES:
        raise Invalid(f"{DESCRIPTOR} is longer than {MAX_DESCRIPTOR_BYTES // 1024} KiB.")
    text = _decode(DESCRIPTOR, data)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise Invalid(f"{DESCRIPTOR}, line {error.lineno or 1}: this is not valid Python: {error.msg}.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Invalid(f"{DESCRIPTOR} can't be parsed as Python.") from error
    found = [value for node in tree.body if (value := _assigned(node)) is not None]
    if len(found) != 1:
        count = "does not assign" if not found else "assigns several times"
        raise Invalid(f'{DESCRIPTOR} {count} {DESCRIPTOR_LIST}. Write {DESCRIPTOR_LIST} = [{{"path": "skills"}}] once.')
    line = f"{DESCRIPTOR}, line {found[0].lineno}"
    try:
        value: object = ast.literal_eval(found[0])
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise Invalid(
            f"{line}: {DESCRIPTOR_LIST} must be a list of literals, because the file is read and not executed."
        ) from error
    if not isinstance(value, list | tuple):
        raise Invalid(f"{line}: {DESCRIPTOR_LIST} must be a list.")
    rows = cast("Sequence[object]", value)
    if len(rows) > MAX_SPECS:
        raise Invalid(f"{line}: {DESCRIPTOR_LIST} has {len(rows)} entries; at most {MAX_SPECS} are allowed.")
    nodes = found[0].elts if isinstance(found[0], ast.List | ast.Tuple) else []
    named: list[_Named] = []
    for number, row in enumerate(rows):
        where = f"{DESCRIPTOR}, line {nodes[number].lineno if number < len(nodes) else found[0].lineno}"
        try:
            named.append(_Named(where, SkillSpec.model_validate(row)))
        except ValidationError as error:
            raise Invalid(f"{where}: {explain_errors(error)[0]}") from error
    return named


def _assigned(node: ast.stmt) -> ast.expr | None:
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
        ) if name == DESCRIPTOR_LIST:
            return value
        case _:
            return None


def _find_folders(files: Iterable[str]) -> list[str]:
    """The folders of all skills; a SKILL.md inside another skill is a file of that skill."""
    folders: list[str] = []
    for path in sorted(files, key=lambda path: (path.count("/"), path)):
        folder, _, name = path.rpartition("/")
        if name.lower() != INSTRUCTIONS.lower() or any(
            folder == outer or folder.startswith(f"{outer}/") for outer in folders
        ):
            continue
        if name != INSTRUCTIONS:
            raise Invalid(f"{path}: the file must be named {INSTRUCTIONS}.")
        if folder.count("/") < 1:
            raise Invalid(
                f"{path}: a skill is a folder in the folder of its namespace. Move it to "
                f"{SKILLS_FOLDER}/<namespace>/<skill>/{INSTRUCTIONS}."
            )
        folders.append(folder)
    return sorted(folders)


def _choose_folders(named: _Named, folders: Sequence[str]) -> list[str]:
    spec = named.spec
    if spec.namespace is not None:
        if not _NAMESPACE.fullmatch(spec.namespace):
            raise Invalid(f"{named.where}: the namespace {spec.namespace!a} can have a-z, 0-9, _ and - only.")
        base = f"{SKILLS_FOLDER}/{spec.namespace}"
    else:
        base = (spec.path or "").removeprefix("./").rstrip("/")
        if base.startswith("/") or any(part in ("", ".", "..") for part in base.split("/")):
            raise Invalid(f"{named.where}: the path {spec.path!a} must be a folder of the bundle, without '..'.")
    chosen = [folder for folder in folders if folder == base or folder.startswith(f"{base}/")]
    if not chosen:
        hint = f" The platform's skills have the namespace {PLATFORM_NAMESPACE}." if spec.namespace else ""
        raise Invalid(f"{named.where}: there is no {INSTRUCTIONS} below {base}/.{hint}")
    return chosen


def _files_below(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    prefix = f"{folder}/"
    return {path.removeprefix(prefix): data for path, data in sorted(files.items()) if path.startswith(prefix)}


def _read_skill(folder: str, files: Mapping[str, bytes], *, namespace: str | None = None) -> Skill:
    """`files` are by path in the folder. The namespace is the name of the folder around it, unless it is given."""
    parent, _, name = folder.rpartition("/")
    own = namespace or parent.rpartition("/")[2]
    if namespace is None and own == PLATFORM_NAMESPACE:
        raise Invalid(f"{folder}: the namespace {own} is that of the platform's skills. Use another name.")
    if not _NAMESPACE.fullmatch(own):
        raise Invalid(f"{folder}: the namespace {own!a} must consist of a-z, 0-9, _ and -, at most 64 characters.")
    if len(files) > MAX_SKILL_FILES:
        raise Invalid(f"{folder} has {len(files)} files; a skill can have at most {MAX_SKILL_FILES}.")
    front = _read_instructions(f"{folder}/{INSTRUCTIONS}", files[INSTRUCTIONS], name)
    return Skill(
        own,
        front.name,
        front.description,
        {path: _build_file(own, name, path, data, f"{folder}/{path}") for path, data in sorted(files.items())},
        _read_sources(folder, files),
        _read_tools(folder, files),
    )


def _read_instructions(path: str, data: bytes, folder_name: str) -> _FrontMatter:
    text = _decode(path, data)
    if len(text) > MAX_SKILL_CHARS:
        raise Invalid(
            f"{path} has {len(text)} characters; at most {MAX_SKILL_CHARS} are allowed, because it is always shown "
            "whole. Move details into other files of the skill, and name them in it."
        )
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise Invalid(f"{path}, line 1: the file must begin with the line --- and the fields name and description.")
    head = lines[1 : MAX_FRONT_MATTER_LINES + 1]
    end = next((number for number, line in enumerate(head) if line.rstrip() == _FENCE), None)
    if end is None:
        raise Invalid(f"{path}, line 1: there is no line --- after the fields, within {MAX_FRONT_MATTER_LINES} lines.")
    file = YamlFile(path, first_line=2)
    front = read_model(file, "\n".join(head[:end]), _FrontMatter)
    if front.name != folder_name:
        named = next((number for number, line in enumerate(head[:end]) if line.startswith("name")), 0)
        raise file.refuse(named, f"the name {front.name!a} must be that of its folder, {folder_name!a}.")
    if not "".join(lines[end + 2 :]).strip():
        raise file.refuse(end, "there are no instructions after the fields.")
    return front


def _read_tools(folder: str, files: Mapping[str, bytes]) -> tuple[SkillTool, ...]:
    if (data := files.get("tools.yaml")) is None:
        return ()
    path = f"{folder}/tools.yaml"
    rows = read_model(YamlFile(path), _decode(path, data), _ToolsFile).tools
    return tuple(SkillTool(row.id, " ".join(row.role.split()), " ".join(row.why.split())) for row in rows)


def _read_sources(folder: str, files: Mapping[str, bytes]) -> dict[int, SourceDraft]:
    if (data := files.get("sources.yaml")) is None:
        return {}
    path = f"{folder}/sources.yaml"
    rows = read_model(YamlFile(path), _decode(path, data), _SourcesFile).sources
    return {
        row.sid or 0: SourceDraft(
            " ".join(row.title.split()) or row.url, row.url, published_time_iso=row.published_time_iso, text=row.text
        )
        for row in rows
    }


def _build_file(namespace: str, skill: str, path: str, data: bytes, shown: str) -> SkillFile:
    if len(data) > MAX_FILE_BYTES:
        raise Invalid(f"{shown} has {len(data)} bytes; a file of a skill can have at most {MAX_FILE_BYTES}.")
    local = f"{SKILLS_FOLDER}/{namespace}.{skill}/{path}"
    try:
        if len(path) > MAX_PATH_CHARS:
            raise Invalid(f"The path has {len(path)} characters; at most {MAX_PATH_CHARS} are allowed.")
        ref = skill_ref(namespace, skill, path)
        check_relative_path(local)
    except Invalid as invalid:
        raise Invalid(f"{shown!a}: {invalid.detail}") from invalid
    except ValueError as error:
        raise Invalid(f"{shown!a}: {error}.") from error
    return SkillFile(ref, local, data, hashlib.sha256(data).hexdigest(), _is_text(data))


def _is_text(data: bytes) -> bool:
    try:
        return "\x00" not in data.decode()
    except UnicodeDecodeError:
        return False


def _decode(path: str, data: bytes) -> str:
    """With line feeds only, and without a byte order mark. Raises Invalid."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Invalid(f"{path}, line {line}: the byte 0x{data[error.start]:02x} is not UTF-8.") from error
    if "\x00" in text:
        line = text[: text.index("\x00")].count("\n") + 1
        raise Invalid(f"{path}, line {line}: the file contains a NUL character.")
    return text


@cache
def load_platform_skills() -> tuple[Skill, ...]:
    """The skills that Everturn ships, with the namespace `public`. Reads their files once."""
    root = package_files("chat_proc.skills").joinpath(PLATFORM_NAMESPACE)
    skills: list[Skill] = []
    for folder in sorted(root.iterdir(), key=lambda entry: entry.name):
        files = dict(_walk(folder, ""))
        skills.append(_read_skill(folder.name, files, namespace=PLATFORM_NAMESPACE))
    return tuple(skills)


def _walk(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_file():
            yield f"{prefix}{entry.name}", entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _walk(entry, f"{prefix}{entry.name}/")

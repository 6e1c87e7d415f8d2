"""Reads one skill: a folder of the Agent Skills standard, with our `tools.yaml` and `sources.yaml`.

Whatever is wrong is refused with the file, the line and what to do. Nothing of a skill is executed or imported. Reading
takes time in proportion to all files, and for YAML more, so it belongs in a thread.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from everturn.core.errors import Invalid
from everturn.core.refs import skill_ref
from everturn.execution.messages import check_relative_path
from everturn.skills.model import INSTRUCTIONS, SKILLS_FOLDER, Skill, SkillFile, SkillTool
from everturn.skills.strict_yaml import YamlFile, read_model
from everturn.timeline.sources import SourceDraft, normalize_url

MAX_SKILL_CHARS: Final = 32_000
"""Characters of one SKILL.md, which is always shown whole: about 8,000 tokens."""
MAX_SKILL_FILES: Final = 200
"""Files of one skill: as many as a program gets."""
MAX_FILE_BYTES: Final = 5 * 1024 * 1024
MAX_PATH_CHARS: Final = 200
"""Characters of a file's path in its skill."""
MAX_FRONT_MATTER_LINES: Final = 200
MAX_TOOLS: Final = 20
MAX_SOURCES: Final = 100
MAX_SOURCE_CHARS: Final = 4_000
"""Characters of the text of one source."""
PLATFORM_NAMESPACE: Final = "public"
PROJECT_NAMESPACE: Final = "project"
RESERVED_NAMESPACES: Final = {
    PLATFORM_NAMESPACE: "the platform's skills",
    PROJECT_NAMESPACE: "skills that are uploaded to a project",
}
"""Whose namespaces no bundle can use."""

NAME_PATTERN: Final = "[a-z0-9]+(?:-[a-z0-9]+)*"
_NAME: Final = re.compile(NAME_PATTERN)
NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FENCE: Final = "---"


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


def read_skill(folder: str, files: Mapping[str, bytes], namespace: str) -> Skill:
    """The skill in a folder, whose last part is its name. `files` are by path in the folder. Raises Invalid."""
    name = folder.rpartition("/")[2]
    if not NAMESPACE.fullmatch(namespace):
        raise Invalid(
            f"{folder}: the namespace {namespace!a} must consist of a-z, 0-9, _ and -, at most 64 characters."
        )
    if len(files) > MAX_SKILL_FILES:
        raise Invalid(f"{folder} has {len(files)} files; a skill can have at most {MAX_SKILL_FILES}.")
    front = _read_instructions(f"{folder}/{INSTRUCTIONS}", files[INSTRUCTIONS], name)
    return Skill(
        namespace,
        front.name,
        front.description,
        {path: _build_file(namespace, name, path, data, f"{folder}/{path}") for path, data in sorted(files.items())},
        _read_sources(folder, files),
        _read_tools(folder, files),
    )


def _read_instructions(path: str, data: bytes, folder_name: str) -> _FrontMatter:
    text = decode_text(path, data)
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
    rows = read_model(YamlFile(path), decode_text(path, data), _ToolsFile).tools
    return tuple(SkillTool(row.id, " ".join(row.role.split()), " ".join(row.why.split())) for row in rows)


def _read_sources(folder: str, files: Mapping[str, bytes]) -> dict[int, SourceDraft]:
    if (data := files.get("sources.yaml")) is None:
        return {}
    path = f"{folder}/sources.yaml"
    rows = read_model(YamlFile(path), decode_text(path, data), _SourcesFile).sources
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


def decode_text(path: str, data: bytes) -> str:
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

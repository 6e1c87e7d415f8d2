"""Skills: instructions for one kind of work, with the files that belong to them. A skill belongs to an agent, or to all
agents of a project, and never changes while a turn runs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from everturn.core.errors import NotFound
from everturn.core.refs import SkillRef
from everturn.timeline.sources import SourceDraft

INSTRUCTIONS: Final = "SKILL.md"
SKILLS_FOLDER: Final = "skills"
"""The folder in which programs find the files of pulled skills."""
SCHEME: Final = "sk:"
_SHOWN_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file of a skill. `path` is where programs find it once it was pulled, `sha256` is in hex."""

    ref: str
    path: str
    data: bytes = field(repr=False)
    sha256: str
    is_text: bool

    @property
    def filename(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def mime(self) -> str:
        return "text/plain" if self.is_text else "application/octet-stream"

    def decode(self) -> str:
        """The text of a file that `is_text`, without a byte order mark."""
        return self.data.decode("utf-8-sig")


class DescribedSkill(Protocol):
    """What the prompt says of a skill."""

    @property
    def id(self) -> str: ...

    @property
    def description(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SkillLine:
    """Implements DescribedSkill, without the files."""

    id: str
    description: str


@dataclass(frozen=True, slots=True)
class SkillTool:
    """A tool that a skill recommends; the agent may not offer it."""

    id: str
    role: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Skill:
    """`description` is one line. `files` are by path relative to the folder of the skill, in order of their paths.

    `sources` are by the numbers with which the texts of the skill cite them.
    """

    namespace: str
    name: str
    description: str
    files: Mapping[str, SkillFile]
    sources: Mapping[int, SourceDraft] = field(default_factory=dict[int, SourceDraft])
    tools: tuple[SkillTool, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def folder_ref(self) -> str:
        """The ref of all files of the skill."""
        return f"{SCHEME}{self.id}/"


@dataclass(frozen=True, slots=True)
class SkillSelection:
    """The files of a ref, which names a file or, with a slash at its end, a folder. `path` is that of the ref for
    programs."""

    ref: str
    path: str
    files: tuple[SkillFile, ...]

    @property
    def is_folder(self) -> bool:
        return self.ref.endswith("/")


class Skills:
    """The skills of one agent, by id. The same skills have the same order, so prompts with them are the same."""

    def __init__(self, skills: Iterable[Skill] = ()) -> None:
        self._by_id = {skill.id: skill for skill in sorted(skills, key=lambda skill: skill.id)}

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def lines(self) -> tuple[SkillLine, ...]:
        """What the prompt says of them."""
        return tuple(SkillLine(skill.id, skill.description) for skill in self)

    def plus(self, others: "Skills") -> "Skills":
        """All of these and of the others, whose ids differ."""
        return Skills((*self, *others)) if others else self

    def find(self, ref: SkillRef) -> tuple[Skill, SkillFile]:
        """The file of a ref, and its skill. Raises NotFound with the names that exist."""
        skill = self._find_skill(f"{ref.namespace}.{ref.skill}")
        if (file := skill.files.get(ref.path)) is None:
            raise NotFound(f"the skill {skill.id} has no such file; it has {_list_names(skill.files)}")
        return skill, file

    def select(self, text: str) -> SkillSelection:
        """The files of a ref: a skill with or without a slash, a folder in it, or a file. Raises NotFound."""
        skill_id, _, rest = text.removeprefix(SCHEME).partition("/")
        skill = self._find_skill(skill_id)
        inside = rest.rstrip("/")
        if (file := skill.files.get(rest)) is not None:
            return SkillSelection(file.ref, file.path, (file,))
        folder = f"{inside}/" if inside else ""
        found = tuple(file for path, file in skill.files.items() if path.startswith(folder))
        if not found:
            raise NotFound(f"the skill {skill.id} has no such file or folder; it has {_list_names(skill.files)}")
        return SkillSelection(f"{skill.folder_ref}{folder}", f"{SKILLS_FOLDER}/{skill.id}/{folder}", found)

    def _find_skill(self, skill_id: str) -> Skill:
        if (skill := self._by_id.get(skill_id)) is None:
            known = f"its skills are {_list_names(self._by_id)}" if self._by_id else "it has none"
            raise NotFound(f"this agent has no such skill; {known}")
        return skill


NO_SKILLS: Final = Skills()


def complete_skill_ref(text: str) -> str:
    """The ref of a skill's instructions, for a ref that names only the skill; other refs are unchanged."""
    skill, slash, rest = text.partition("/")
    return f"{skill}/{INSTRUCTIONS}" if text.startswith(SCHEME) and not (slash and rest) else text


def is_instructions(text: str) -> bool:
    """Whether a ref names the instructions of a skill."""
    return text.startswith(SCHEME) and complete_skill_ref(text).endswith(f"/{INSTRUCTIONS}")


def render_catalog(skills: Iterable[DescribedSkill]) -> str:
    """A line for each skill, for the prompt."""
    return "\n".join(f"- {SCHEME}{skill.id}: {skill.description}" for skill in skills)


def _list_names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN_NAMES} more" if len(listed) > _SHOWN_NAMES else ""
    return ", ".join(listed[:_SHOWN_NAMES]) + more

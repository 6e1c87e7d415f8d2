"""Skills that are uploaded to a project, for all of its agents.

Each change of a project's skills increases its revision. A turn records the revision with which it begins, and keeps
the skills of that revision to its end, on any worker. Removed skills are therefore stored for another week.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from everturn.core.identity import Principal

MAX_PROJECT_SKILLS: Final = 20
MAX_PROJECT_BYTES: Final = 24 * 1024 * 1024
"""Of the unpacked files of a project's skills together: a worker has them in memory while turns use them."""
MAX_STORED_VERSIONS: Final = 1_000
MAX_STORED_BYTES: Final = 512 * 1024 * 1024
"""Of a project's skills with those that were replaced or deleted and are not removed yet: their number and the size of
their files."""
MAX_PROJECT_CATALOG_CHARS: Final = 8_000
"""Characters of the lines about a project's skills in the prompt: about 2,000 tokens in each request."""


@dataclass(frozen=True, slots=True)
class ProjectSkill:
    """`size` counts the bytes of its unpacked files, `sha256` is that of its archive, in hex."""

    name: str
    description: str
    size: int
    file_count: int
    sha256: str
    added_at: datetime


@dataclass(frozen=True, slots=True)
class PackedSkill:
    """A checked skill as it is stored: `content` is its archive."""

    name: str
    description: str
    size: int
    file_count: int
    sha256: str
    content: bytes = field(repr=False)


class ProjectSkillBook(Protocol):
    """What administrators do with the skills of their project."""

    async def load_all(self, principal: Principal) -> tuple[ProjectSkill, ...]:
        """Those that turns get now, by name. Raises Unavailable."""
        ...

    async def load_content(self, principal: Principal, name: str) -> bytes:
        """The archive. Raises NotFound, Unavailable."""
        ...

    async def save(self, principal: Principal, skill: PackedSkill) -> tuple[ProjectSkill, bool]:
        """Add a skill or replace the one of its name; whether it is new. An equal one stays as it is.

        Raises Conflict above a limit, Unavailable.
        """
        ...

    async def delete(self, principal: Principal, name: str) -> None:
        """Raises NotFound, Unavailable."""
        ...


class ProjectSkillSource(Protocol):
    """What workers do."""

    async def load_revision(self, principal: Principal, revision: int) -> tuple[tuple[str, bytes], ...]:
        """The names and archives of the skills of a revision. Raises Unavailable."""
        ...

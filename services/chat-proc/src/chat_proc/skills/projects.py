"""The skills of projects in a worker's memory."""

import asyncio
from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

import structlog

from everturn.core.errors import Invalid
from everturn.core.identity import Principal
from everturn.core.metrics import PROJECT_SKILLS_UNREADABLE
from everturn.skills.archive import unpack_upload
from everturn.skills.model import NO_SKILLS, Skill, Skills
from everturn.skills.projects import MAX_PROJECT_BYTES, ProjectSkillSource
from everturn.skills.reader import PROJECT_NAMESPACE, read_skill

_log = structlog.get_logger(__name__)

MAX_KEPT_REVISIONS: Final = 64
MAX_KEPT_BYTES: Final = 4 * MAX_PROJECT_BYTES
"""Of the files of all revisions in memory together. Running turns keep theirs in addition."""


class ProjectSkills:
    """The skills of each revision that turns have used recently; a revision never changes. Without a source there are
    none."""

    def __init__(self, source: ProjectSkillSource | None = None) -> None:
        self._source = source
        self._kept: OrderedDict[tuple[str, str, int], tuple[Skills, int]] = OrderedDict()
        self._loading: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def load(self, principal: Principal, revision: int) -> Skills:
        """The skills of a revision; 0 has none. A skill that can't be read is omitted. Raises Unavailable."""
        if revision == 0 or self._source is None:
            return NO_SKILLS
        key = principal.tenant, principal.project, revision
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept[0]
        # One after the other in each project, so that turns that begin together load a revision once.
        async with self._loading.setdefault(key[:2], asyncio.Lock()):
            if (kept := self._kept.get(key)) is not None:
                return kept[0]
            found = [
                skill
                for name, content in await self._source.load_revision(principal, revision)
                if (skill := await asyncio.to_thread(_try_read, principal, name, content)) is not None
            ]
            size = sum(file.size for skill in found for file in skill.files.values())
            loaded = Skills(found)
            self._kept[key] = loaded, size
            while len(self._kept) > MAX_KEPT_REVISIONS or sum(size for _, size in self._kept.values()) > MAX_KEPT_BYTES:
                self._kept.popitem(last=False)
            return loaded


def _try_read(principal: Principal, name: str, content: bytes) -> Skill | None:
    try:
        return read_skill(name, unpack_upload(content), PROJECT_NAMESPACE)
    except (Invalid, KeyError) as error:
        # Another version of this program has stored it.
        PROJECT_SKILLS_UNREADABLE.inc()
        _log.error(
            "A skill of a project can't be read",
            tenant=principal.tenant,
            project=principal.project,
            skill=name,
            error=str(error),
        )
        return None

"""The skills of projects in Postgres, under the principal's policies."""

from typing import Final

from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Principal
from everturn.postgres.pool import Connection, Database
from everturn.skills.model import SkillLine, render_catalog
from everturn.skills.projects import (
    MAX_PROJECT_BYTES,
    MAX_PROJECT_CATALOG_CHARS,
    MAX_PROJECT_SKILLS,
    MAX_STORED_BYTES,
    MAX_STORED_VERSIONS,
    PackedSkill,
    ProjectSkill,
)
from everturn.skills.reader import PROJECT_NAMESPACE

_COLUMNS: Final = "name, description, size, file_count, sha256, added_at"
_LIST: Final = f"""
SELECT {_COLUMNS} FROM project_skill
 WHERE tenant = $1 AND project = $2 AND until_revision IS NULL ORDER BY name
"""
_STORED: Final = """
SELECT count(*) AS versions, COALESCE(sum(size), 0)::bigint AS bytes FROM project_skill
 WHERE tenant = $1 AND project = $2
"""
_CONTENT: Final = """
SELECT content FROM project_skill WHERE tenant = $1 AND project = $2 AND name = $3 AND until_revision IS NULL
"""
_REVISION: Final = """
SELECT name, content FROM project_skill
 WHERE tenant = $1 AND project = $2 AND since_revision <= $3 AND (until_revision IS NULL OR until_revision > $3)
 ORDER BY name
"""
# Locks the row, so changes of a project's skills follow each other.
_LOCK: Final = """
INSERT INTO project_skill_revision (tenant, project, revision) VALUES ($1, $2, 0)
ON CONFLICT (tenant, project) DO UPDATE SET revision = project_skill_revision.revision
RETURNING revision
"""
_ADVANCE: Final = "UPDATE project_skill_revision SET revision = $3 WHERE tenant = $1 AND project = $2"
_REMOVE: Final = """
UPDATE project_skill SET until_revision = $4, removed_at = clock_timestamp()
 WHERE tenant = $1 AND project = $2 AND name = $3 AND until_revision IS NULL
"""
_ADD: Final = f"""
INSERT INTO project_skill (tenant, project, name, since_revision, description, size, file_count, sha256, content,
                           added_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp())
RETURNING {_COLUMNS}
"""


class PostgresProjectSkills:
    """Implements ProjectSkillBook with the role of the ingress, and ProjectSkillSource with the worker's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_all(self, principal: Principal) -> tuple[ProjectSkill, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return await _load_all(transaction, principal)

    async def load_content(self, principal: Principal, name: str) -> bytes:
        async with self._database.transaction(principal, readonly=True) as transaction:
            content = await transaction.fetchval(_CONTENT, principal.tenant, principal.project, name)
        if content is None:
            raise NotFound()
        return content

    async def load_revision(self, principal: Principal, revision: int) -> tuple[tuple[str, bytes], ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_REVISION, principal.tenant, principal.project, revision)
        return tuple((row["name"], row["content"]) for row in rows)

    async def save(self, principal: Principal, skill: PackedSkill) -> tuple[ProjectSkill, bool]:
        scope = principal.tenant, principal.project
        async with self._database.transaction(principal) as transaction:
            revision = await transaction.fetchval(_LOCK, *scope) + 1
            others = {each.name: each for each in await _load_all(transaction, principal)}
            before = others.pop(skill.name, None)
            if before is not None and before.sha256 == skill.sha256:
                return before, False
            _check_limits(skill, tuple(others.values()))
            (stored,) = await transaction.fetch(_STORED, *scope)
            if stored["versions"] >= MAX_STORED_VERSIONS or stored["bytes"] + skill.size > MAX_STORED_BYTES:
                raise Conflict(
                    "The skills of this project were replaced too often: those of the last week are still stored. "
                    f"At most {MAX_STORED_VERSIONS} versions with {MAX_STORED_BYTES} bytes are allowed. Try later."
                )
            await transaction.execute(_REMOVE, *scope, skill.name, revision)
            about = skill.description, skill.size, skill.file_count, skill.sha256, skill.content
            (row,) = await transaction.fetch(_ADD, *scope, skill.name, revision, *about)
            await transaction.execute(_ADVANCE, *scope, revision)
        return ProjectSkill(**row), before is None

    async def delete(self, principal: Principal, name: str) -> None:
        scope = principal.tenant, principal.project
        async with self._database.transaction(principal) as transaction:
            revision = await transaction.fetchval(_LOCK, *scope) + 1
            if await transaction.execute(_REMOVE, *scope, name, revision) == "UPDATE 0":
                raise NotFound()
            await transaction.execute(_ADVANCE, *scope, revision)


async def _load_all(transaction: Connection, principal: Principal) -> tuple[ProjectSkill, ...]:
    rows = await transaction.fetch(_LIST, principal.tenant, principal.project)
    return tuple(ProjectSkill(**row) for row in rows)


def _check_limits(new: PackedSkill, others: tuple[ProjectSkill, ...]) -> None:
    if len(others) >= MAX_PROJECT_SKILLS:
        raise Conflict(f"This project has {len(others)} skills already; at most {MAX_PROJECT_SKILLS} are allowed.")
    if (size := new.size + sum(each.size for each in others)) > MAX_PROJECT_BYTES:
        raise Conflict(
            f"The skills of this project would have {size} bytes together; at most {MAX_PROJECT_BYTES} are allowed."
        )
    lines = [SkillLine(f"{PROJECT_NAMESPACE}.{each.name}", each.description) for each in (*others, new)]
    if (chars := len(render_catalog(lines))) > MAX_PROJECT_CATALOG_CHARS:
        raise Conflict(
            f"The descriptions of this project's skills would have {chars} characters together; at most "
            f"{MAX_PROJECT_CATALOG_CHARS} are allowed, because each request contains them. Shorten them."
        )

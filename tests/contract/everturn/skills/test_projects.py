"""The skills of projects in Postgres: revisions, limits, and who sees them."""

import asyncio
import hashlib
import itertools

import pytest

from everturn.core.errors import Conflict, DatabaseFault, NotFound
from everturn.core.identity import Principal
from everturn.lifecycle.postgres_erasure import PostgresRetention
from everturn.skills.postgres import PostgresProjectSkills
from everturn.skills.projects import MAX_PROJECT_BYTES, MAX_PROJECT_SKILLS, PackedSkill
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import Harness

_projects = itertools.count(1)


@pytest.fixture
def admin() -> Principal:
    return Principal("acme", f"skills-{next(_projects)}", "ann")


@pytest.fixture
def book(roles: Roles) -> PostgresProjectSkills:
    return PostgresProjectSkills(roles.ingress)


@pytest.fixture
def source(roles: Roles) -> PostgresProjectSkills:
    return PostgresProjectSkills(roles.worker)


def packed(name: str, content: bytes = b"v1", *, size: int = 10, description: str = "Helps.") -> PackedSkill:
    return PackedSkill(name, description, size, 1, hashlib.sha256(content).hexdigest(), content)


async def test_a_revision_keeps_its_skills_when_they_are_replaced_and_deleted(
    book: PostgresProjectSkills, source: PostgresProjectSkills, admin: Principal
) -> None:
    _, first_is_new = await book.save(admin, packed("refunds"))
    await book.save(admin, packed("tone"))
    replaced, is_new = await book.save(admin, packed("refunds", b"v2"))
    await book.delete(admin, "tone")

    assert (first_is_new, is_new) == (True, False)
    assert [await source.load_revision(admin, number) for number in range(5)] == [
        (),
        (("refunds", b"v1"),),
        (("refunds", b"v1"), ("tone", b"v1")),
        (("refunds", b"v2"), ("tone", b"v1")),
        (("refunds", b"v2"),),
    ]
    assert await book.load_all(admin) == (replaced,)
    assert await book.load_content(admin, "refunds") == b"v2"
    for name in ("tone", "none"):
        with pytest.raises(NotFound):
            await book.delete(admin, name)
        with pytest.raises(NotFound):
            await book.load_content(admin, name)


async def test_an_equal_upload_changes_nothing(
    book: PostgresProjectSkills, roles: Roles, admin: Principal, postgres_harness: Harness
) -> None:
    first, _ = await book.save(admin, packed("refunds"))

    again, is_new = await book.save(admin, packed("refunds"))

    assert (again, is_new) == (first, False)
    rows = "SELECT revision FROM project_skill_revision WHERE project = $1"
    assert await roles.superuser.fetchval(rows, admin.project) == 1


async def test_a_turn_begins_with_the_revision_of_its_project(
    book: PostgresProjectSkills, roles: Roles, postgres_harness: Harness
) -> None:
    claim = await postgres_harness.start_turn()
    assert claim.turn_id is not None
    principal, where = postgres_harness.principal, (claim.lease.conversation_id, claim.turn_id)
    timelines = PostgresTimelines(roles.worker)
    before = (await timelines.load_start(principal, *where)).skills_revision

    await book.save(principal, packed("refunds", before.to_bytes(4)))
    await book.save(Principal(principal.tenant, "another", principal.user_id), packed("refunds"))

    assert (await timelines.load_start(principal, *where)).skills_revision == before + 1
    await book.delete(principal, "refunds")


async def test_changes_at_once_each_get_a_revision(
    book: PostgresProjectSkills, source: PostgresProjectSkills, admin: Principal
) -> None:
    await asyncio.gather(*[book.save(admin, packed(f"s{number}")) for number in range(8)])

    assert [len(await source.load_revision(admin, number)) for number in range(10)] == [*range(9), 8]


async def test_the_skills_of_a_project_are_limited(book: PostgresProjectSkills, admin: Principal) -> None:
    with pytest.raises(Conflict, match=f"at most {MAX_PROJECT_BYTES} are allowed"):
        await book.save(admin, packed("big", size=MAX_PROJECT_BYTES + 1))
    for number in range(7):
        await book.save(admin, packed(f"s{number}", description="x" * 1_024))
    with pytest.raises(Conflict, match="descriptions of this project's skills would have 8"):
        await book.save(admin, packed("s7", description="x" * 1_024))
    for number in range(MAX_PROJECT_SKILLS):
        await book.save(admin, packed(f"s{number}"))
    with pytest.raises(Conflict, match=f"at most {MAX_PROJECT_SKILLS} are allowed"):
        await book.save(admin, packed("more"))
    # Replacing one is no more than there was.
    await book.save(admin, packed("s0", b"v2"))


async def test_versions_that_are_not_removed_yet_are_limited(
    book: PostgresProjectSkills, roles: Roles, admin: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await book.save(admin, packed("refunds"))
    monkeypatch.setattr("everturn.skills.postgres.MAX_STORED_VERSIONS", 2)
    await book.save(admin, packed("refunds", b"v2"))

    with pytest.raises(Conflict, match="replaced too often"):
        await book.save(admin, packed("refunds", b"v3"))
    monkeypatch.undo()
    monkeypatch.setattr("everturn.skills.postgres.MAX_STORED_BYTES", 29)
    with pytest.raises(Conflict, match="with 29 bytes are allowed"):
        await book.save(admin, packed("refunds", b"v3"))
    assert await book.load_content(admin, "refunds") == b"v2"


async def test_a_colleague_sees_them_and_nobody_outside_the_project(
    book: PostgresProjectSkills, source: PostgresProjectSkills, roles: Roles, admin: Principal
) -> None:
    await book.save(admin, packed("secret"))
    colleague = Principal(admin.tenant, admin.project, "bob")
    outsiders = Principal(admin.tenant, "other", "ann"), Principal("other", admin.project, "ann")

    assert await source.load_revision(colleague, 1) == (("secret", b"v1"),)
    for who in outsiders:
        assert await book.load_all(who) == () == await source.load_revision(who, 1)
        with pytest.raises(NotFound):
            await book.delete(who, "secret")
        with pytest.raises(NotFound):
            await book.load_content(who, "secret")
        for database in (roles.ingress, roles.worker):
            async with database.transaction(who) as transaction:
                for table in ("project_skill", "project_skill_revision"):
                    assert await transaction.fetchval(f"SELECT count(*) FROM {table}") == 0
    async with roles.worker.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM project_skill") == 0


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("worker", "INSERT INTO project_skill_revision VALUES ('acme', 'p', 9)"),
        ("worker", "DELETE FROM project_skill"),
        ("ingress", "DELETE FROM project_skill"),
        ("ingress", "UPDATE project_skill SET content = ''"),
        ("ingress", "INSERT INTO project_skill_revision VALUES ('other', 'p', 9)"),
    ],
)
async def test_a_service_changes_only_what_it_must(role: str, statement: str, roles: Roles, admin: Principal) -> None:
    database = roles.ingress if role == "ingress" else roles.worker

    with pytest.raises(DatabaseFault, match=r"42501|row-level security"):
        async with database.transaction(admin) as transaction:
            await transaction.execute(statement)


async def test_removed_skills_are_deleted_a_week_later(
    book: PostgresProjectSkills, source: PostgresProjectSkills, roles: Roles, admin: Principal
) -> None:
    for content in (b"v1", b"v2", b"v3"):
        await book.save(admin, packed("refunds", content))
    age = "UPDATE project_skill SET removed_at = removed_at - $2 * interval '1 day' WHERE project = $1"
    await roles.superuser.execute(f"{age} AND content = 'v1'", admin.project, 8)
    await roles.superuser.execute(f"{age} AND content = 'v2'", admin.project, 6)

    removed = await PostgresRetention(roles.worker).remove_expired_rows(days=0, limit=100)

    assert removed["project_skill"] == 1
    assert [await source.load_revision(admin, number) for number in (1, 2, 3)] == [
        (), (("refunds", b"v2"),), (("refunds", b"v3"),)
    ]  # fmt: skip

"""The published bundles: which are listed, which version of each, and how long content is kept."""

from dataclasses import replace

import pytest

from everturn.bundles.postgres import PostgresBundles
from everturn.bundles.registry import BUILT_IN, KEPT_DAYS, LISTED_S, BundleListing, StoredBundle, WidgetListing
from everturn.core.errors import DatabaseFault, NotFound
from everturn.core.identity import Role
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN

OLD, NEW = "a" * 64, "b" * 64
DESK = BundleListing(
    "desk",
    OLD,
    "Desk",
    "Opens tickets.",
    "🎫",
    ("Open a ticket", "Which tickets are open?"),
    ("paid", "admin"),
    problems=("mcp.crm: The server does not answer.",),
    widgets=(WidgetListing("board", "Open tickets"),),
)


@pytest.fixture(autouse=True)
async def empty_registry(roles: Roles) -> None:
    """Bundles belong to the installation, which all tests of a run share."""
    await roles.superuser.execute("DELETE FROM bundle")


@pytest.fixture
def workers(roles: Roles) -> PostgresBundles:
    return PostgresBundles(roles.worker)


@pytest.fixture
def ingress(roles: Roles) -> PostgresBundles:
    return PostgresBundles(roles.ingress)


def content(digest: str = OLD, bundle_id: str = "desk") -> StoredBundle:
    return StoredBundle(bundle_id, digest, f'{{"id": "{bundle_id}"}}', digest.encode())


async def age(roles: Roles, seconds: float) -> None:
    await roles.superuser.execute("UPDATE bundle SET seen_at = seen_at - make_interval(secs => $1)", seconds)


async def test_the_built_in_agent_is_listed_before_any_worker_has_run(
    workers: PostgresBundles, ingress: PostgresBundles
) -> None:
    assert await ingress.load_listed() == (BUILT_IN,)

    await workers.store(content())

    assert await ingress.load_listed() == (BUILT_IN,)


async def test_a_published_bundle_is_listed_with_all_that_people_see(
    workers: PostgresBundles, ingress: PostgresBundles
) -> None:
    await workers.store(content())
    await workers.publish([DESK])

    assert await ingress.load_listed() == (DESK,)
    assert await ingress.load("desk") == await workers.load("desk", OLD) == content()


async def test_the_newest_version_that_can_run_is_listed(workers: PostgresBundles, ingress: PostgresBundles) -> None:
    await workers.store(content())
    broken = replace(DESK, digest=NEW, title="New desk", is_ready=False, error="bundle.toml, line 3: Unknown key.")
    await workers.publish([DESK, broken])
    assert await ingress.load_listed() == (DESK,)

    await workers.store(content(NEW))
    await workers.publish([DESK, replace(broken, error="")])

    assert await ingress.load_listed() == (replace(broken, is_ready=True, error=""),)


async def test_a_bundle_without_content_shows_its_error_and_is_open_to_nobody(
    workers: PostgresBundles, ingress: PostgresBundles
) -> None:
    await workers.publish([replace(DESK, roles=(), error="instructions.md is empty.")])

    (listed,) = await ingress.load_listed()

    assert listed == replace(DESK, roles=(), is_ready=False, error="instructions.md is empty.")
    assert not listed.is_open_to(ANN)
    with pytest.raises(NotFound):
        await ingress.load("desk")


async def test_a_bundle_that_no_worker_publishes_any_more_is_not_listed(
    workers: PostgresBundles, ingress: PostgresBundles, roles: Roles
) -> None:
    await workers.store(content())
    await workers.publish([DESK, BUILT_IN])
    await age(roles, LISTED_S + 1)
    assert [listing.id for listing in await ingress.load_listed()] == ["default", "desk"]

    await workers.publish([BUILT_IN])

    assert [listing.id for listing in await ingress.load_listed()] == ["default"]
    assert await workers.load("desk", OLD) == content()


async def test_a_bundle_that_a_worker_withdraws_is_not_listed_unless_another_has_it(
    workers: PostgresBundles, ingress: PostgresBundles
) -> None:
    await workers.store(content())
    await workers.publish([DESK, BUILT_IN])

    await workers.publish([BUILT_IN], withdrawn=["desk"])
    withdrawn = [listing.id for listing in await ingress.load_listed()]
    await workers.publish([DESK, BUILT_IN])

    assert withdrawn == ["default"]
    assert [listing.id for listing in await ingress.load_listed()] == ["default", "desk"]


async def test_content_that_nobody_published_for_long_is_removed(workers: PostgresBundles, roles: Roles) -> None:
    await workers.store(content())
    await workers.store(content(NEW))
    await workers.publish([DESK, replace(DESK, digest=NEW)])
    await roles.superuser.execute(
        "UPDATE bundle SET seen_at = seen_at - make_interval(days => $1), stored_at = stored_at -"
        " make_interval(days => $1)",
        KEPT_DAYS + 1,
    )

    await workers.publish([replace(DESK, digest=NEW)])

    assert (await workers.load("desk")).digest == NEW
    with pytest.raises(NotFound):
        await workers.load("desk", OLD)


async def test_fields_of_a_newer_version_are_ignored(
    workers: PostgresBundles, ingress: PostgresBundles, roles: Roles
) -> None:
    await workers.store(content())
    await workers.publish([DESK])
    newer = '{"title": "Desk", "colour": "red", "widgets": [["board", "Orders", "tall"]]}'
    await roles.superuser.execute("UPDATE bundle SET listing = $1", newer)

    assert await ingress.load_listed() == (
        BundleListing("desk", OLD, "Desk", widgets=(WidgetListing("board", "Orders"),)),
    )


async def test_the_files_of_widgets_are_read_by_version_until_it_is_removed(
    workers: PostgresBundles, ingress: PostgresBundles, roles: Roles
) -> None:
    await workers.store(replace(content(), widgets={"board/index.html": b"<p>old", "board/a.js": b"1"}))
    await workers.store(replace(content(NEW), widgets={"board/index.html": b"<p>new"}))

    assert await ingress.load_widget_file("desk", OLD, "board/index.html") == b"<p>old"
    assert await ingress.load_widget_file("desk", NEW, "board/index.html") == b"<p>new"
    for wanted in (("desk", NEW, "board/a.js"), ("desk", OLD, "tools/desk.py"), ("help", OLD, "board/a.js")):
        with pytest.raises(NotFound):
            await ingress.load_widget_file(*wanted)

    await roles.superuser.execute("DELETE FROM bundle WHERE digest = $1", OLD)
    with pytest.raises(NotFound):
        await ingress.load_widget_file("desk", OLD, "board/index.html")


async def test_a_version_that_a_worker_without_widgets_has_stored_gets_them_later(
    workers: PostgresBundles, ingress: PostgresBundles
) -> None:
    await workers.store(content())
    await workers.store(replace(content(), widgets={"board/index.html": b"<p>"}))
    await workers.store(replace(content(), widgets={"board/index.html": b"<p>"}))

    assert await ingress.load_widget_file("desk", OLD, "board/index.html") == b"<p>"


async def test_the_ingress_can_only_read(ingress: PostgresBundles) -> None:
    with pytest.raises(DatabaseFault, match="42501"):
        await ingress.publish([DESK])


@pytest.mark.parametrize(
    ("roles_of_bundle", "role", "is_open"),
    [((), Role.ANONYMOUS, True), (("paid", "admin"), Role.PAID, True), (("paid",), Role.REGISTERED, False)],
)
def test_a_bundle_is_open_to_people_with_one_of_its_roles(
    roles_of_bundle: tuple[str, ...], role: Role, *, is_open: bool
) -> None:
    listing = replace(DESK, roles=roles_of_bundle)

    assert listing.is_open_to(replace(ANN, roles=frozenset({role}))) is is_open

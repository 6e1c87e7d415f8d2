"""People's accounts in Postgres: links that work once and for ten minutes, codes for one caller."""

import asyncio
import itertools
from dataclasses import replace

import asyncpg
import pytest

from everturn.conversations.postgres import PostgresConversations
from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, ConversationId
from everturn.lifecycle.postgres_erasure import PostgresRetention
from everturn.mcp_connections.connections import (
    MAX_ANSWERED,
    ConnectAnswer,
    ConnectRequest,
    ServerKey,
    StoredTokens,
    hash_state,
)
from everturn.mcp_connections.postgres import PostgresConnections
from everturn_testing.database_roles import Roles
from everturn_testing.turns.harness import ANN, Harness

MAIL, CRM = ServerKey("desk", "mail"), ServerKey("desk", "crm")
LEASE_S = 20.0
_numbers = itertools.count(1)


@pytest.fixture
def ann() -> Principal:
    return Principal("acme", f"project-{next(_numbers)}", "ann")


@pytest.fixture
def bob(ann: Principal) -> Principal:
    return Principal(ann.tenant, ann.project, "bob")


@pytest.fixture
def store(roles: Roles) -> PostgresConnections:
    return PostgresConnections(roles.worker)


@pytest.fixture
def book(roles: Roles) -> PostgresConnections:
    return PostgresConnections(roles.ingress)


def build_request(state: str, approval: str = "") -> ConnectRequest:
    number = next(_numbers)
    return ConnectRequest(
        ApprovalId(approval or f"appr_{number}"),
        ConversationId(f"conv_{number}"),
        hash_state(state),
        "Example Mail",
        f"sealed {state}".encode(),
    )


@pytest.fixture
def state() -> str:
    return f"state-{next(_numbers)}"


async def claim_answer(
    store: PostgresConnections,
    who: Principal,
    key: ServerKey = MAIL,
    *,
    lease_s: float = LEASE_S,
    replaced: int | None = None,
    not_for: str = "no link",
) -> ConnectAnswer | None:
    """Claim as a worker whose configuration is that of all links but one."""

    def accepts(sealed: bytes) -> bool:
        return sealed != f"sealed {not_for}".encode()

    return await store.claim_answer(who, key, accepts=accepts, lease_s=lease_s, replaced=replaced)


async def connect(
    store: PostgresConnections, book: PostgresConnections, who: Principal, key: ServerKey = MAIL
) -> StoredTokens:
    """Connect an account with the tokens `first`."""
    state = f"state-{next(_numbers)}"
    await store.save_request(who, key, build_request(state))
    assert len(await book.answer_request(state, key, "code", None)) == 1
    answer = await claim_answer(store, who, key)
    assert answer is not None and await store.replace(who, key, answer.version, b"first")
    stored = await store.load(who, key)
    assert stored is not None
    return stored


async def test_an_answer_goes_to_one_caller_who_saves_the_tokens(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    assert await store.load(ann, MAIL) is None
    request = build_request(state)
    await store.save_request(ann, MAIL, request)
    found = await book.find_request(state, MAIL, "code")
    assert found is not None and (found.principal.owner, found.title) == (ann.owner, "Example Mail")
    (answered,) = await book.answer_request(state, MAIL, "code", "https://login.example")
    assert (answered.principal.owner, answered.conversation_id, answered.approval_id) == (
        ann.owner,
        request.conversation_id,
        request.approval_id,
    )

    claims = await asyncio.gather(*(claim_answer(store, ann) for _ in range(5)))
    (claimed,) = [each for each in claims if each is not None]
    assert claimed == ConnectAnswer(request.sealed, "code", "https://login.example", claimed.version)
    assert await store.load(ann, MAIL) == StoredTokens(None, claimed.version), "others do not see that it is in use"
    assert await book.load_all(ann) == []

    assert await store.replace(ann, MAIL, claimed.version, b"tokens")
    assert await store.load(ann, MAIL) == StoredTokens(b"tokens", claimed.version + 1)
    (listed,) = await book.load_all(ann)
    assert (listed.bundle_id, listed.server, listed.title) == ("desk", "mail", "Example Mail")


async def test_a_link_works_once_even_if_it_is_used_at_once(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    await store.save_request(ann, MAIL, build_request(state))
    answers = await asyncio.gather(*(book.answer_request(state, MAIL, f"code-{n}", None) for n in range(8)))
    assert sorted(map(len, answers)) == [0] * 7 + [1]
    found = [await book.find_request(state, MAIL, f"code-{n}") for n in range(8)]
    assert [each is not None for each in found] == [answered != [] for answered in answers]


@pytest.mark.parametrize("code", ["code", None])
async def test_the_same_answer_again_names_the_same_turns(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, bob: Principal, state: str, code: str | None
) -> None:
    await store.save_request(ann, MAIL, build_request(state))
    await store.save_request(ann, MAIL, build_request(f"{state}-beside"))
    await store.save_request(bob, MAIL, build_request(f"{state}-bob"))
    first, *others = await asyncio.gather(*(book.answer_request(state, MAIL, code, None) for _ in range(5)))
    assert len(first) == (1 if code is None else 2)
    claimed = await claim_answer(store, ann)
    assert (claimed is None) == (code is None)
    await store.save_request(ann, MAIL, build_request(f"{state}-later"))

    others.append(await book.answer_request(state, MAIL, code, "https://another.example"))
    for again in others:
        assert {each.approval_id for each in again} == {each.approval_id for each in first}
    assert await book.find_request(state, MAIL, code) is not None
    for other in ("other", None if code else "code"):
        assert await book.find_request(state, MAIL, other) is None
        assert await book.answer_request(state, MAIL, other, None) == []
    assert await book.answer_request(state, CRM, code, None) == []
    assert await claim_answer(store, ann) is None, "the code is given out again"


async def test_a_settled_link_repeats_nothing_by_itself(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    await store.save_request(ann, MAIL, build_request(state))
    await store.save_request(ann, MAIL, build_request(f"{state}-beside"))
    assert len(await book.answer_request(state, MAIL, "code", None)) == 2
    assert await book.find_request(f"{state}-beside", MAIL, "code") is None
    assert await book.answer_request(f"{state}-beside", MAIL, "code", None) == []


async def test_an_answer_is_not_repeated_for_a_deleted_connection_or_after_the_link_expired(
    store: PostgresConnections, book: PostgresConnections, roles: Roles, ann: Principal, state: str
) -> None:
    for end in (
        book.delete(ann, MAIL),
        roles.superuser.execute("UPDATE mcp_request SET expires_at = now() WHERE tenant = 'acme'"),
    ):
        await store.save_request(ann, MAIL, build_request(state))
        assert len(await book.answer_request(state, MAIL, "code", None)) == 1
        await end
        assert await book.find_request(state, MAIL, "code") is None
        assert await book.answer_request(state, MAIL, "code", None) == []


async def test_a_link_belongs_to_its_server(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    await store.save_request(ann, MAIL, build_request(state))
    for other in (CRM, ServerKey("other", "mail")):
        assert await book.find_request(state, other, "code") is None
        assert await book.answer_request(state, other, "code", None) == []
    assert await book.find_request("guessed", MAIL, "code") is None
    assert len(await book.answer_request(state, MAIL, "code", None)) == 1
    assert await claim_answer(store, ann, CRM) is None


async def test_a_link_expires_after_ten_minutes_and_its_code_ten_minutes_later(
    store: PostgresConnections, book: PostgresConnections, roles: Roles, ann: Principal, state: str
) -> None:
    async def age(column: str, seconds: int) -> None:
        update = f"UPDATE mcp_request SET {column} = {column} - make_interval(secs => $2) WHERE state_hash = $1"
        await roles.superuser.execute(update, hash_state(state), float(seconds))

    await store.save_request(ann, MAIL, build_request(state))
    await age("expires_at", 590)
    assert await book.find_request(state, MAIL, "code") is not None
    await age("expires_at", 10)
    assert await book.find_request(state, MAIL, "code") is None
    assert await book.answer_request(state, MAIL, "code", None) == []

    await store.save_request(ann, MAIL, build_request(state := f"{state}-again"))
    await book.answer_request(state, MAIL, "code", None)
    await age("answered_at", 600)
    assert await claim_answer(store, ann) is None


async def test_one_account_answers_all_links_of_its_person_to_the_server(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, bob: Principal, state: str
) -> None:
    await store.save_request(ann, MAIL, asked := build_request(state))
    await store.save_request(ann, MAIL, beside := build_request(f"{state}-beside"))
    await store.save_request(ann, CRM, build_request(f"{state}-crm"))
    await store.save_request(bob, MAIL, build_request(f"{state}-bob"))
    answered = await book.answer_request(state, MAIL, "code", None)
    assert {each.approval_id for each in answered} == {asked.approval_id, beside.approval_id}
    assert await book.find_request(f"{state}-beside", MAIL, "code") is None
    for other, key in ((f"{state}-crm", CRM), (f"{state}-bob", MAIL)):
        assert await book.find_request(other, key, "code") is not None
    claimed = await claim_answer(store, ann)
    assert claimed is not None and (claimed.sealed, claimed.code) == (asked.sealed, "code")


async def test_a_refusal_answers_its_own_link_only(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    await store.save_request(ann, MAIL, refused := build_request(state))
    await store.save_request(ann, MAIL, build_request(f"{state}-beside"))
    (answered,) = await book.answer_request(state, MAIL, None, None)
    assert answered.approval_id == refused.approval_id
    assert await claim_answer(store, ann) is None
    assert await store.load(ann, MAIL) is None
    assert await book.find_request(f"{state}-beside", MAIL, "code") is not None


async def test_links_that_are_answered_at_once_are_each_answered_once(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    requests = [build_request(f"{state}-{n}") for n in range(12)]
    for request in requests:
        await store.save_request(ann, MAIL, request)
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*(book.answer_request(f"{state}-{n}", MAIL, "code", None) for n in range(12)))
    settled = [each.approval_id for answered in answers for each in answered]
    assert sorted(settled) == sorted(request.approval_id for request in requests)


async def test_one_account_answers_a_bounded_number_of_links(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    await store.save_request(ann, MAIL, asked := build_request(state))
    for n in range(MAX_ANSWERED):
        await store.save_request(ann, MAIL, build_request(f"{state}-{n}"))
    answered = await book.answer_request(state, MAIL, "code", None)
    assert len(answered) == MAX_ANSWERED and asked.approval_id in {each.approval_id for each in answered}


async def test_a_link_for_the_same_approval_replaces_the_earlier_one(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    await store.save_request(ann, MAIL, first := build_request(state))
    await store.save_request(ann, MAIL, replace(first, state_hash=hash_state(f"{state}-2")))
    assert await book.find_request(state, MAIL, "code") is None
    assert len(await book.answer_request(f"{state}-2", MAIL, "code", None)) == 1


async def test_a_link_does_not_replace_one_whose_answer_is_not_claimed(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    first = build_request(state)
    assert await store.save_request(ann, MAIL, first)
    assert len(await book.answer_request(state, MAIL, "code", None)) == 1
    late = replace(first, state_hash=hash_state(f"{state}-late"))
    assert not await store.save_request(ann, MAIL, late)
    claimed = await claim_answer(store, ann)
    assert claimed is not None and (claimed.sealed, claimed.code) == (first.sealed, "code")
    assert await store.save_request(ann, MAIL, late), "a code that could not be exchanged is asked for again"


async def test_a_worker_that_dies_with_a_code_leaves_no_connection(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    for each in (state, f"{state}-2"):
        await store.save_request(ann, MAIL, build_request(each))
        await book.answer_request(each, MAIL, "code", None)
        lost = await claim_answer(store, ann, lease_s=0.05)
        assert lost is not None
        await asyncio.sleep(0.1)
        assert await store.load(ann, MAIL) == StoredTokens(None, lost.version, is_interrupted=True)
        assert await book.load_all(ann) == []
    await connect(store, book, ann)
    assert not await store.replace(ann, MAIL, lost.version, b"late"), "the lost caller replaces a newer connection"


async def test_a_code_is_left_to_workers_with_the_configuration_of_its_link(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    first = await connect(store, book, ann)
    await store.save_request(ann, MAIL, request := build_request(state))
    assert len(await book.answer_request(state, MAIL, "code", None)) == 1
    assert await claim_answer(store, ann, replaced=first.version, not_for=state) is None
    assert await store.load(ann, MAIL) == first and len(await book.load_all(ann)) == 1

    claimed = await claim_answer(store, ann, replaced=first.version)
    assert claimed is not None and (claimed.sealed, claimed.code) == (request.sealed, "code")
    assert await store.load(ann, MAIL) == StoredTokens(None, claimed.version) and await book.load_all(ann) == []
    await store.delete_version(ann, MAIL, first.version)
    assert not await store.replace(ann, MAIL, first.version, b"renewed for the earlier configuration")
    assert await store.replace(ann, MAIL, claimed.version, b"tokens")


async def test_a_code_does_not_replace_a_connection_that_was_renewed(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, state: str
) -> None:
    first = await connect(store, book, ann)
    assert await store.replace(ann, MAIL, first.version, b"renewed")
    await store.save_request(ann, MAIL, build_request(state))
    await book.answer_request(state, MAIL, "code", None)
    assert await claim_answer(store, ann, replaced=first.version) is None
    assert await store.load(ann, MAIL) == StoredTokens(b"renewed", first.version + 1)


async def test_one_caller_at_a_time_renews_tokens(
    store: PostgresConnections, book: PostgresConnections, ann: Principal
) -> None:
    version = (await connect(store, book, ann)).version
    leases = await asyncio.gather(*(store.try_lease(ann, MAIL, version, lease_s=LEASE_S) for _ in range(6)))
    assert sorted(leases) == [False] * 5 + [True]
    await store.release(ann, MAIL, version)
    assert await store.try_lease(ann, MAIL, version, lease_s=0.05)
    await asyncio.sleep(0.1)
    assert await store.try_lease(ann, MAIL, version, lease_s=LEASE_S), "the lease of a dead worker lasts"
    assert await store.replace(ann, MAIL, version, b"second")
    assert not await store.replace(ann, MAIL, version, b"late")
    assert not await store.try_lease(ann, MAIL, version, lease_s=LEASE_S), "an old version is renewed"
    await store.delete_version(ann, MAIL, version)
    assert await store.load(ann, MAIL) == StoredTokens(b"second", version + 1)
    await store.delete_version(ann, MAIL, version + 1)
    assert await store.load(ann, MAIL) is None


async def test_a_person_deletes_one_connection_or_all(
    store: PostgresConnections, book: PostgresConnections, ann: Principal, bob: Principal, state: str
) -> None:
    for who, key in ((ann, MAIL), (ann, CRM), (bob, MAIL)):
        await connect(store, book, who, key)
    await store.save_request(ann, MAIL, build_request(state))
    version = (await connect(store, book, ann, ServerKey("other", "mail"))).version
    assert [each.bundle_id for each in await book.load_all(ann)] == ["other", "desk", "desk"]
    assert [await book.delete(ann, MAIL), await book.delete(ann, MAIL)] == [1, 0]
    assert await book.find_request(state, MAIL, "code") is not None, "a turn waits for an account in vain"
    assert len(await book.answer_request(state, MAIL, "code", None)) == 1
    assert await book.delete(ann) == 2
    assert await book.load_all(ann) == [] and await claim_answer(store, ann) is None
    assert not await store.replace(ann, ServerKey("other", "mail"), version, b"renewed"), "a renewal undoes it"
    assert len(await book.load_all(bob)) == 1


async def test_links_are_removed_an_hour_after_they_expired(
    store: PostgresConnections, roles: Roles, ann: Principal, state: str
) -> None:
    await roles.superuser.execute("DELETE FROM mcp_request")
    for name, minutes in (("old", 61), ("young", 59)):
        await store.save_request(ann, MAIL, build_request(f"{state}-{name}"))
        await roles.superuser.execute(
            "UPDATE mcp_request SET expires_at = now() - make_interval(mins => $2) WHERE state_hash = $1",
            hash_state(f"{state}-{name}"),
            minutes,
        )
    assert (await PostgresRetention(roles.worker).remove_expired_rows(days=0, limit=10))["mcp_request"] == 1
    left = await roles.superuser.fetch("SELECT state_hash FROM mcp_request")
    assert [row["state_hash"] for row in left] == [hash_state(f"{state}-young")]


@pytest.mark.parametrize(("days", "unused_days"), [(0, 180), (400, 180), (30, 30)])
async def test_connections_that_are_not_used_are_removed(
    store: PostgresConnections, book: PostgresConnections, roles: Roles, ann: Principal, days: int, unused_days: int
) -> None:
    await roles.superuser.execute("DELETE FROM mcp_connection")
    await roles.superuser.execute("UPDATE retention_limit SET min_days = 1")
    wiki, new = ServerKey("desk", "wiki"), ServerKey("desk", "new")
    for key, unused in ((MAIL, unused_days + 1), (CRM, unused_days + 1), (wiki, unused_days - 1), (new, 0)):
        await connect(store, book, ann, key)
        await roles.superuser.execute(
            "UPDATE mcp_connection SET used_at = now() - make_interval(days => $2) WHERE server = $1",
            key.server,
            unused,
        )
    assert await store.load(ann, CRM) is not None
    removed = await PostgresRetention(roles.worker).remove_expired_rows(days=days, limit=10)
    assert removed["mcp_connection"] == 1
    assert {each.server for each in await book.load_all(ann)} == {"crm", "wiki", "new"}


async def test_a_connection_that_is_used_meanwhile_is_neither_removed_nor_waited_for(
    store: PostgresConnections, book: PostgresConnections, roles: Roles, ann: Principal
) -> None:
    await roles.superuser.execute("DELETE FROM mcp_connection")
    for key in (MAIL, CRM):
        await connect(store, book, ann, key)
    await roles.superuser.execute("UPDATE mcp_connection SET used_at = now() - interval '200 days'")
    async with roles.superuser.transaction():
        await roles.superuser.execute("UPDATE mcp_connection SET used_at = now() WHERE server = 'mail'")
        removed = await PostgresRetention(roles.worker).remove_expired_rows(days=0, limit=10)
    assert removed["mcp_connection"] == 1
    assert [each.server for each in await book.load_all(ann)] == ["mail"]


async def test_functions_for_all_tenants_read_no_tokens(roles: Roles) -> None:
    async with roles.superuser.transaction():
        await roles.superuser.execute("SET LOCAL ROLE everturn_dispatch")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with roles.superuser.transaction():
                await roles.superuser.execute("SELECT sealed FROM mcp_connection")


async def test_the_use_of_a_connection_is_noted_once_an_hour(
    store: PostgresConnections, book: PostgresConnections, roles: Roles, ann: Principal
) -> None:
    await connect(store, book, ann)
    read = "SELECT used_at FROM mcp_connection WHERE project = $1"
    first = await roles.superuser.fetchval(read, ann.project)
    await store.load(ann, MAIL)
    assert await roles.superuser.fetchval(read, ann.project) == first


async def test_a_place_that_never_got_tokens_is_removed_after_an_hour(
    store: PostgresConnections, book: PostgresConnections, roles: Roles, ann: Principal, bob: Principal, state: str
) -> None:
    await roles.superuser.execute("DELETE FROM mcp_connection")
    for who, minutes in ((ann, 61), (bob, 59)):
        await store.save_request(who, MAIL, build_request(f"{state}-{who.user_id}"))
        await book.answer_request(f"{state}-{who.user_id}", MAIL, "code", None)
        assert await claim_answer(store, who)
        await roles.superuser.execute(
            "UPDATE mcp_connection SET lease_until = now() - make_interval(mins => $2) WHERE user_id = $1",
            who.user_id,
            minutes,
        )
    await connect(store, book, ann, CRM)
    removed = await PostgresRetention(roles.worker).remove_expired_rows(days=0, limit=10)
    assert removed["mcp_connection"] == 1
    left = await roles.superuser.fetch("SELECT user_id, server FROM mcp_connection ORDER BY user_id")
    assert [tuple(row) for row in left] == [("ann", "crm"), ("bob", "mail")]


async def test_erasing_a_conversation_deletes_its_links(
    store: PostgresConnections, book: PostgresConnections, postgres_harness: Harness, roles: Roles, state: str
) -> None:
    receipt = await postgres_harness.say("x")
    await store.save_request(ANN, MAIL, replace(build_request(state), conversation_id=receipt.conversation_id))
    await PostgresConversations(roles.ingress).erase(ANN, receipt.conversation_id)
    assert await book.find_request(state, MAIL, "code") is None


async def test_work_for_a_deleted_connection_does_not_change_the_next_one(
    store: PostgresConnections, book: PostgresConnections, ann: Principal
) -> None:
    async def claim() -> int:
        state = f"state-{next(_numbers)}"
        await store.save_request(ann, MAIL, build_request(state))
        await book.answer_request(state, MAIL, "code", None)
        answer = await claim_answer(store, ann)
        assert answer is not None
        return answer.version

    exchanged = await claim()
    await book.delete(ann, MAIL)
    assert await claim() != exchanged
    assert not await store.replace(ann, MAIL, exchanged, b"of the deleted account")

    await book.delete(ann, MAIL)
    renewed = await connect(store, book, ann)
    assert await store.try_lease(ann, MAIL, renewed.version, lease_s=LEASE_S)
    await book.delete(ann, MAIL)
    current = await connect(store, book, ann)
    assert not await store.replace(ann, MAIL, renewed.version, b"of the deleted account")
    await store.delete_version(ann, MAIL, renewed.version)
    await store.release(ann, MAIL, renewed.version)
    assert await store.load(ann, MAIL) == current

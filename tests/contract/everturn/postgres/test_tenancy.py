"""Tenant isolation: a stranger's repository calls find nothing, nor does SQL without its filter."""

import importlib
import inspect
import pkgutil
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import everturn
from everturn.conversations.model import ConversationChanges, ConversationQuery, Conversations
from everturn.conversations.postgres import PostgresConversations
from everturn.core.errors import DatabaseFault, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, ArtifactId, CallId, CollectionId, ConversationId, RandomIds, SignalId, TurnId
from everturn.feedback.model import Feedback, FeedbackStore, Period, Reaction
from everturn.feedback.postgres import PostgresFeedback
from everturn.files.model import Rn, parse_rn
from everturn.files.ports import Artifacts
from everturn.files.postgres import PostgresArtifacts
from everturn.history.model import Origin, WorkspaceChanges
from everturn.history.postgres import PostgresWorkspaceChanges
from everturn.knowledge.collections import CollectionBook, CollectionIndex, CollectionScope
from everturn.knowledge.postgres_collections import PostgresCollections
from everturn.lifecycle.exports import Exports, Section
from everturn.lifecycle.forks import ForkRequest, Forks
from everturn.lifecycle.postgres_exports import PostgresExports
from everturn.lifecycle.postgres_forks import PostgresForks
from everturn.mcp_connections.connections import ConnectionBook, ConnectRequest, ServerKey, TokenStore, hash_state
from everturn.mcp_connections.postgres import PostgresConnections
from everturn.memory.postgres_memories import PostgresUserMemories
from everturn.memory.postgres_search import PostgresMemorySearch, PostgresSnippetIndex
from everturn.memory.search import (
    CatalogQuery,
    EmbeddedSnippet,
    IndexJob,
    MemorySearch,
    QueryVector,
    Scope,
    SnippetIndex,
    SnippetQuery,
)
from everturn.memory.user_memories import MemoryBook, UserMemories
from everturn.timeline.blocks import BlockType
from everturn.timeline.sources import SourceDraft, merge_sources
from everturn.timeline.turns import SignalKind
from everturn.turns.detached import DetachedRuns
from everturn.turns.inbox import IdempotencyKey, Inbox, IncomingMessage, IncomingSignal
from everturn.turns.ports import Approvals, ConversationReader, Timelines, Turns
from everturn.turns.postgres_approvals import PostgresApprovals
from everturn.turns.postgres_detached import PostgresDetachedRuns
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_reading import PostgresConversationReader, PostgresTurns
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.core import BEGINNING
from everturn_testing.database_roles import Roles
from everturn_testing.knowledge.collections import build_upload
from everturn_testing.memory.search_contract import ENCODER, point, said
from everturn_testing.memory.user_memories_contract import remembered
from everturn_testing.turns.approvals_contract import ask
from everturn_testing.turns.detached_contract import build_start
from everturn_testing.turns.harness import ANN, STRANGERS, Harness, commit, think

PORTS = (
    Conversations,
    Turns,
    FeedbackStore,
    Approvals,
    Artifacts,
    Exports,
    Forks,
    Inbox,
    Timelines,
    SnippetIndex,
    MemorySearch,
    UserMemories,
    MemoryBook,
    TokenStore,
    ConnectionBook,
    ConversationReader,
    CollectionBook,
    CollectionIndex,
    DetachedRuns,
    WorkspaceChanges,
)
GIVES_NOTHING = {
    "Conversations.erase",
    "Forks.fork",
    "ConversationReader.try_load_plan",
    "WorkspaceChanges.load_origin",
}
"""Calls whose success with what ann has shows nothing, or ends what the others look at."""
ASKED_BEFORE_WHO = {"Credentials"}
"""Authentication runs before the principal is known, so no policy can restrict it; see accounts/test_credentials.py."""
TABLES = (
    "conversation",
    "approval",
    "lease",
    "turn",
    "block",
    "artifact",
    "signal",
    "feedback",
    "tool_effect",
    "usage_event",
    "idempotency",
    "source",
    "snippet",
    "user_memory",
    "forgotten_memory",
    "collection",
    "collection_document",
    "mcp_connection",
    "mcp_request",
    "detached_run",
)
CREDENTIAL_TABLES = ("api_key", "credential_cutoff")
"""Queried before the caller is authenticated: no service has rights on them (see accounts/test_credentials.py)."""
KNOWLEDGE_TABLES = ("knowledge_space", "knowledge_document", "knowledge_passage")
"""Documents of bundles belong to no tenant: no service has rights on them (see knowledge/test_store.py)."""
PROJECT_TABLES = ("project_skill", "project_skill_revision")
PROJECT_PORTS = {"ProjectSkillBook", "ProjectSkillSource"}
"""Shared by everybody in a project (see skills/test_projects.py)."""
DOCUMENT_ID = ArtifactId("art_01890a5d-ac96-774b-bcce-b302099a8057")
SECRET_REF = "fi:secret.files/a"
REMEMBERED = EmbeddedSnippet(said("secret"), point(1.0))
LONG = timedelta(days=400)
SEARCH = SnippetQuery(
    Scope(), "secret", BEGINNING - LONG, BEGINNING + LONG, BEGINNING, QueryVector(ENCODER, point(1.0))
)
KEY = IdempotencyKey("messages", "anns-key", "hash")


@dataclass(frozen=True, slots=True)
class Ann:
    """What Ann has."""

    conversation_id: ConversationId
    turn_id: TurnId
    signal_id: SignalId
    artifact_id: ArtifactId
    object_key: str
    rn: Rn
    answered: IdempotencyKey
    collection_id: CollectionId


Case = Callable[[Any, Ann, Principal], Awaitable[object]]
CASES: dict[str, Case] = {
    "Conversations.load": lambda port, ann, who: port.load(who, ann.conversation_id),
    "Conversations.load_titles": lambda port, ann, who: port.load_titles(who, [ann.conversation_id]),
    "Conversations.load_page": lambda port, ann, who: port.load_page(who, ConversationQuery()),
    "Conversations.save": lambda port, ann, who: port.save(
        who, ann.conversation_id, ConversationChanges(title="taken", archived=True)
    ),
    "Conversations.erase": lambda port, ann, who: port.erase(who, ann.conversation_id),
    "Turns.load_sources": lambda port, ann, who: port.load_sources(who, ann.conversation_id),
    "Turns.load_ordinal": lambda port, ann, who: port.load_ordinal(who, ann.conversation_id, ann.turn_id),
    "Turns.load_blocks": lambda port, ann, who: port.load_blocks(who, ann.conversation_id, [1, 2]),
    "Turns.load_page": lambda port, ann, who: port.load_page(who, ann.conversation_id),
    "Turns.load_status": lambda port, ann, who: port.load_status(who, ann.conversation_id),
    "FeedbackStore.save": lambda port, ann, who: port.save(
        who, ann.conversation_id, Feedback(ann.turn_id, "user", Reaction.OK, "", BEGINNING)
    ),
    "FeedbackStore.load_totals": lambda port, ann, who: port.load_totals(
        who, Period(BEGINNING - LONG, BEGINNING + LONG), project=False
    ),
    "FeedbackStore.load_conversations": lambda port, ann, who: port.load_conversations(
        who, Period(BEGINNING - LONG, BEGINNING + LONG), project=False, limit=9, after=None
    ),
    "Approvals.load_of_turn": lambda port, ann, who: port.load_of_turn(who, ann.turn_id),
    "DetachedRuns.load": lambda port, ann, who: port.load(who, ann.turn_id, CallId("call_1")),
    "Artifacts.load": lambda port, ann, who: port.load(who, ann.artifact_id),
    "Artifacts.load_by_rn": lambda port, ann, who: port.load_by_rn(who, ann.rn),
    "Artifacts.load_by_ref": lambda port, ann, who: port.load_by_ref(who, ann.conversation_id, SECRET_REF),
    "Artifacts.load_by_refs": lambda port, ann, who: port.load_by_refs(who, ann.conversation_id, [SECRET_REF]),
    "Artifacts.load_tree": lambda port, ann, who: port.load_tree(who, ann.conversation_id, "fi:secret."),
    "Artifacts.load_workspace_turns": lambda port, ann, who: port.load_workspace_turns(who, ann.conversation_id),
    "Artifacts.load_unreferenced": lambda port, ann, who: port.load_unreferenced(who, [ann.object_key]),
    "Artifacts.load_named_keys": lambda port, ann, who: port.load_named_keys(who, ConversationId("conv_x")),
    "Exports.load_header": lambda port, ann, who: port.load_header(who, ann.conversation_id),
    "Exports.load_blocks": lambda port, ann, who: port.load_blocks(who, ann.conversation_id, after=None, last_seq=9),
    "Exports.load_page": lambda port, ann, who: port.load_page(who, ann.conversation_id, Section.ARTIFACTS, after=""),
    "WorkspaceChanges.load": lambda port, ann, who: port.load(who, ann.conversation_id),
    "WorkspaceChanges.load_origin": lambda port, ann, who: port.load_origin(who, ann.conversation_id),
    "WorkspaceChanges.load_known_files": lambda port, ann, who: port.load_known_files(
        who, ann.conversation_id, Origin("https://example.com/a.git", "a" * 40)
    ),
    "Forks.fork": lambda port, ann, who: port.fork(
        who, ann.conversation_id, ForkRequest(ConversationId("conv_x")), KEY
    ),
    "Inbox.accept_message": lambda port, ann, who: port.accept_message(
        who, IncomingMessage(ann.conversation_id, False, "x", (), TurnId("turn_x"), SignalId("sig_x")), KEY
    ),
    "Inbox.accept_signal": lambda port, ann, who: port.accept_signal(
        who, ann.conversation_id, IncomingSignal(SignalId("sig_x"), SignalKind.CANCEL, ""), KEY
    ),
    "Inbox.try_load_receipt": lambda port, ann, who: port.try_load_receipt(who, ann.answered),
    "Inbox.load_signal": lambda port, ann, who: port.load_signal(who, ann.conversation_id, ann.signal_id),
    "Inbox.save_signal_text": lambda port, ann, who: port.save_signal_text(
        who, ann.conversation_id, ann.signal_id, "taken"
    ),
    "Inbox.retract_signal": lambda port, ann, who: port.retract_signal(who, ann.conversation_id, ann.signal_id),
    "Timelines.load_start": lambda port, ann, who: port.load_start(who, ann.conversation_id, ann.turn_id),
    "Timelines.load_recent_blocks": lambda port, ann, who: port.load_recent_blocks(who, ann.conversation_id),
    "Timelines.load_turn": lambda port, ann, who: port.load_turn(who, ann.turn_id),
    "Timelines.load_signals": lambda port, ann, who: port.load_signals(who, ann.turn_id),
    "Timelines.load_title": lambda port, ann, who: port.load_title(who, ann.conversation_id),
    "Timelines.load_sources": lambda port, ann, who: port.load_sources(who, ann.conversation_id),
    "Timelines.load_source_text": lambda port, ann, who: port.load_source_text(who, ann.conversation_id, 1),
    "SnippetIndex.load_texts": lambda port, ann, who: port.load_texts(who, ann.conversation_id, ann.turn_id),
    "SnippetIndex.save_snippets": lambda port, ann, who: port.save_snippets(
        who, IndexJob(who, ann.conversation_id, ann.turn_id, 1), [REMEMBERED], encoder=ENCODER
    ),
    "MemorySearch.find_snippets": lambda port, ann, who: port.find_snippets(who, SEARCH),
    "UserMemories.forget": lambda port, ann, who: port.forget(who, remembered("secret").id),
    "UserMemories.load": lambda port, ann, who: port.load(who, [remembered("secret").id]),
    "UserMemories.load_hotset": lambda port, ann, who: port.load_hotset(who, 8),
    "UserMemories.load_candidates": lambda port, ann, who: port.load_candidates(who, None),
    "MemoryBook.load_page": lambda port, ann, who: port.load_page(who, limit=9, after=None),
    "MemoryBook.erase": lambda port, ann, who: port.erase(who, remembered("secret").id),
    "MemorySearch.count_unindexed": lambda port, ann, who: port.count_unindexed(who, Scope()),
    "MemorySearch.load_catalog": lambda port, ann, who: port.load_catalog(who, CatalogQuery(Scope())),
}


async def is_owned(port: CollectionBook, ann: "Ann", who: Principal) -> bool:
    await port.check_owned(who, ann.collection_id)
    return True


CASES |= {
    "ConversationReader.load_turn_blocks": lambda port, ann, who: port.load_turn_blocks(
        who, ann.conversation_id, ann.turn_id
    ),
    "ConversationReader.load_blocks_before": lambda port, ann, who: port.load_blocks_before(
        who, ann.conversation_id, 1_000, tuple(BlockType)
    ),
    "ConversationReader.try_load_last_block": lambda port, ann, who: port.try_load_last_block(
        who, ann.conversation_id, ann.turn_id
    ),
    "ConversationReader.try_load_plan": lambda port, ann, who: port.try_load_plan(who, ann.conversation_id, "secret"),
    "CollectionBook.load_all": lambda port, ann, who: port.load_all(who),
    "CollectionBook.check_owned": is_owned,
    "CollectionBook.rename": lambda port, ann, who: port.rename(who, ann.collection_id, "taken"),
    "CollectionBook.delete": lambda port, ann, who: port.delete(who, ann.collection_id),
    "CollectionBook.load_documents": lambda port, ann, who: port.load_documents(who, ann.collection_id),
    "CollectionBook.add_documents": lambda port, ann, who: port.add_documents(
        who, ann.collection_id, [build_upload(ann.collection_id, "taken.txt", b"taken")]
    ),
    "CollectionBook.delete_document": lambda port, ann, who: port.delete_document(who, ann.collection_id, DOCUMENT_ID),
    "CollectionIndex.load_readable": lambda port, ann, who: port.load_readable(who),
}
MAIL, CRM = ServerKey("desk", "mail"), ServerKey("desk", "crm")
CASES |= {
    "TokenStore.load": lambda port, ann, who: port.load(who, MAIL),
    "TokenStore.try_lease": lambda port, ann, who: port.try_lease(who, MAIL, 1, lease_s=9),
    "TokenStore.replace": lambda port, ann, who: port.replace(who, MAIL, 1, b"taken"),
    "TokenStore.release": lambda port, ann, who: _done(port.release(who, MAIL, 1)),
    "TokenStore.delete_version": lambda port, ann, who: _done(port.delete_version(who, MAIL, 1)),
    "TokenStore.claim_answer": lambda port, ann, who: port.claim_answer(who, CRM, accepts=bool, lease_s=9),
    "ConnectionBook.load_all": lambda port, ann, who: port.load_all(who),
    "ConnectionBook.delete": lambda port, ann, who: port.delete(who, MAIL),
}
MAKES_ONES_OWN = {
    "CollectionBook.create",
    "Conversations.create",
    "UserMemories.save",
    "MemoryBook.erase_all",
    "TokenStore.save_request",
}
"""Calls that name nothing of another's."""


async def _done(call: Awaitable[None]) -> str:
    await call
    return "done"


def methods_with_principal() -> list[str]:
    return [
        f"{port.__name__}.{name}"
        for port in PORTS
        for name, method in inspect.getmembers(port, inspect.isfunction)
        if "principal" in inspect.signature(method).parameters
    ]


PARTS = {"TurnPages"}
"""Protocols that one of PORTS extends."""


def find_ports() -> set[str]:
    """All Protocols of the package with a call that takes a principal."""
    found: set[str] = set()
    modules = pkgutil.walk_packages(everturn.__path__, "everturn.")
    for module in (each for each in modules if "testing" not in each.name):
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            calls = [call for _, call in inspect.getmembers(kind, inspect.isfunction) if call.__name__ != "__init__"]
            if getattr(kind, "_is_protocol", False) and any(
                "principal" in inspect.signature(call).parameters for call in calls
            ):
                found.add(name)
    return found


@pytest.fixture
async def ann(postgres_harness: Harness, roles: Roles) -> Ann:
    harness = postgres_harness
    answered = IdempotencyKey("messages", secrets.token_hex(8), "hash")
    receipt = await harness.say("secret", key=answered, uploads=(harness.upload(),))
    claim = await harness.claim(receipt.conversation_id)
    found = merge_sources({}, [SourceDraft("secret", "https://secret.example", text="secret")])
    await harness.timelines.commit(claim.lease, replace(commit(claim, think(claim, "secret")), sources=found.changes))
    await ask(harness, PostgresApprovals(roles.worker), claim)
    await roles.superuser.execute("DELETE FROM detached_run")  # a person can have few, and each test is of the same one
    assert await PostgresDetachedRuns(roles.worker, owner="worker-1").save_start(claim.lease, build_start(claim))
    job = IndexJob(ANN, receipt.conversation_id, receipt.turn_id, 1)
    await PostgresSnippetIndex(roles.worker).save_snippets(ANN, job, [REMEMBERED], encoder=ENCODER)
    await PostgresUserMemories(roles.worker).save(ANN, remembered("secret"), None)
    connections = PostgresConnections(roles.worker)

    def link(name: str) -> ConnectRequest:
        return ConnectRequest(ApprovalId(name), receipt.conversation_id, hash_state(name), "secret", b"secret")

    await connections.delete(ANN)
    await connections.save_request(ANN, MAIL, link("mail"))
    await PostgresConnections(roles.ingress).answer_request("mail", MAIL, "secret", None)
    answer = await connections.claim_answer(ANN, MAIL, accepts=bool, lease_s=9)
    assert answer is not None and await connections.replace(ANN, MAIL, answer.version, b"secret")
    await connections.save_request(ANN, CRM, link("crm"))
    await PostgresConnections(roles.ingress).answer_request("crm", CRM, "secret", None)
    followup = await harness.say("secret", receipt.conversation_id)
    await harness.give_feedback(
        ANN, receipt.conversation_id, Feedback(receipt.turn_id, "user", Reaction.OK, "secret", BEGINNING)
    )
    collection_id = await add_collection(roles, "secret")
    row = await roles.superuser.fetchrow(
        "UPDATE artifact SET ref = $2 WHERE conversation_id = $1 RETURNING id, object_key, rn",
        receipt.conversation_id,
        SECRET_REF,
    )
    assert row is not None and followup.signal_id is not None
    return Ann(
        receipt.conversation_id,
        receipt.turn_id,
        followup.signal_id,
        row["id"],
        row["object_key"],
        parse_rn(row["rn"]),
        answered,
        collection_id,
    )


async def add_collection(roles: Roles, title: str) -> CollectionId:
    collection_id = RandomIds(lambda: 1_772_366_400_000).collection()
    book = PostgresCollections(roles.ingress)
    await roles.superuser.execute("DELETE FROM collection")
    await book.create(ANN, collection_id, title, CollectionScope.USER)
    upload = replace(build_upload(collection_id, f"{title}.txt", b"secret"), id=DOCUMENT_ID)
    await book.add_documents(ANN, collection_id, [upload])
    return collection_id


@pytest.fixture
def ports(roles: Roles) -> dict[str, object]:
    return {
        "Conversations": PostgresConversations(roles.ingress),
        "Turns": PostgresTurns(roles.ingress),
        "FeedbackStore": PostgresFeedback(roles.ingress),
        "Approvals": PostgresApprovals(roles.worker),
        "Artifacts": PostgresArtifacts(roles.worker),
        "Exports": PostgresExports(roles.ingress),
        "Forks": PostgresForks(roles.ingress),
        "Inbox": PostgresInbox(roles.ingress),
        "Timelines": PostgresTimelines(roles.worker),
        "SnippetIndex": PostgresSnippetIndex(roles.worker),
        "MemorySearch": PostgresMemorySearch(roles.worker),
        "UserMemories": PostgresUserMemories(roles.worker),
        "MemoryBook": PostgresUserMemories(roles.ingress),
        "TokenStore": PostgresConnections(roles.worker),
        "ConnectionBook": PostgresConnections(roles.ingress),
        "ConversationReader": PostgresConversationReader(roles.worker),
        "CollectionBook": PostgresCollections(roles.ingress),
        "CollectionIndex": PostgresCollections(roles.worker),
        "DetachedRuns": PostgresDetachedRuns(roles.worker, owner="worker-1"),
        "WorkspaceChanges": PostgresWorkspaceChanges(roles.ingress),
    }


def test_every_port_with_a_principal_is_tried() -> None:
    assert find_ports() == {port.__name__ for port in PORTS} | ASKED_BEFORE_WHO | PROJECT_PORTS | PARTS


def test_every_call_that_takes_a_principal_has_a_case() -> None:
    assert set(methods_with_principal()) == set(CASES) | MAKES_ONES_OWN


@pytest.mark.parametrize("stranger", STRANGERS, ids=["other-user", "other-project", "other-tenant"])
@pytest.mark.parametrize("call", sorted(CASES))
async def test_a_stranger_finds_nothing_and_changes_nothing(
    call: str, stranger: Principal, ann: Ann, ports: dict[str, object], roles: Roles
) -> None:
    port = ports[call.partition(".")[0]]
    before = await snapshot(roles)

    try:
        found = await CASES[call](port, ann, stranger)
    except NotFound:
        found = None

    assert "secret" not in repr(found)
    assert ann.turn_id not in repr(found)
    assert await snapshot(roles) == before


@pytest.mark.parametrize("call", sorted(set(CASES) - GIVES_NOTHING))
async def test_the_owner_finds_it(call: str, ann: Ann, ports: dict[str, object]) -> None:
    assert await CASES[call](ports[call.partition(".")[0]], ann, ANN) is not None


async def snapshot(roles: Roles) -> list[object]:
    return [
        await roles.superuser.fetchval(f"SELECT md5(string_agg(t::text, '' ORDER BY t::text)) FROM {table} AS t")
        for table in TABLES
    ]


async def test_a_whole_project_does_not_reach_into_another(ann: Ann, roles: Roles) -> None:
    book, period = PostgresFeedback(roles.ingress), Period(BEGINNING - LONG, BEGINNING + LONG)
    colleague, *outsiders = STRANGERS

    seen = await book.load_conversations(colleague, period, project=True, limit=99, after=None)
    unseen = [await book.load_conversations(who, period, project=True, limit=9, after=None) for who in outsiders]

    assert ann.conversation_id in {each.conversation_id for each in seen}
    assert "secret" not in repr(seen)
    assert unseen == [()] * len(outsiders)
    assert [(await book.load_totals(who, period, project=True)).turns for who in outsiders] == [0] * len(outsiders)


@pytest.mark.parametrize("user", ["ann", None])
async def test_reports_of_a_user_contain_nothing_of_others(user: str | None, ann: Ann, roles: Roles) -> None:
    async with roles.ingress.transaction(STRANGERS[0]) as transaction:
        rows = await transaction.fetch(
            "SELECT * FROM judged_conversations($1, '2020-01-01', '2040-01-01', NULL, NULL, 9)", user
        )

    assert list(rows) == []


@pytest.mark.parametrize("stranger", [*STRANGERS, None], ids=["other-user", "other-project", "other-tenant", "nobody"])
async def test_sql_without_a_filter_shows_a_stranger_no_row(stranger: Principal | None, ann: Ann, roles: Roles) -> None:
    readable = {
        "ingress": set(TABLES) - {"lease", "tool_effect", "usage_event", "snippet", "detached_run"},
        "worker": set(TABLES) - {"lease", "idempotency"},
    }
    for name, database in (("ingress", roles.ingress), ("worker", roles.worker)):
        for table in readable[name]:
            if stranger is None:
                async with database.connection() as connection:
                    assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0
            else:
                async with database.transaction(stranger) as transaction:
                    assert await transaction.fetchval(f"SELECT count(*) FROM {table}") == 0


async def test_a_row_in_anothers_name_is_refused(ann: Ann, roles: Roles) -> None:
    with pytest.raises(DatabaseFault, match="row-level security"):
        async with roles.ingress.transaction(STRANGERS[0]) as transaction:
            await transaction.execute(
                "INSERT INTO conversation (id, tenant, project, user_id) VALUES ('conv_z', 'acme', 'support', 'ann')"
            )


async def test_a_principal_ends_with_its_transaction(ann: Ann, roles: Roles) -> None:
    async with roles.ingress.transaction(ANN) as transaction:
        assert await transaction.fetchval("SELECT count(*) FROM conversation") > 0

    async with roles.ingress.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM conversation") == 0


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("ingress", "INSERT INTO block DEFAULT VALUES"),
        ("ingress", "UPDATE block SET body = ''"),
        ("worker", "UPDATE block SET body = ''"),
        ("ingress", "DELETE FROM block"),
        ("worker", "DELETE FROM block"),
        ("worker", "DELETE FROM conversation"),
        ("ingress", "DELETE FROM conversation"),
        ("worker", "UPDATE conversation SET fence = 9"),
        ("ingress", "UPDATE conversation SET fence = 9"),
        ("worker", "UPDATE lease SET owner = 'me'"),
        ("ingress", "SELECT FROM lease"),
        ("worker", "UPDATE usage_event SET cost_usd = 0"),
        ("worker", "UPDATE source SET key = 'other'"),
        ("worker", "DELETE FROM source"),
        ("ingress", "UPDATE source SET title = 'other'"),
        ("worker", "SELECT FROM idempotency"),
        ("worker", "SELECT * FROM erase_conversation('x')"),
        ("ingress", "SELECT * FROM claim_conversation('x', 'me', interval '1 s')"),
        ("ingress", "TRUNCATE block"),
        ("worker", "SET ROLE everturn_dispatch"),
        ("ingress", "CREATE TABLE mine ()"),
    ],
)
async def test_a_role_can_do_no_more_than_it_needs(role: str, statement: str, roles: Roles) -> None:
    database = roles.ingress if role == "ingress" else roles.worker

    with pytest.raises(DatabaseFault, match="42501"):
        async with database.transaction(ANN) as transaction:
            await transaction.execute(statement)


async def test_no_role_of_ours_steps_around_the_policies(roles: Roles) -> None:
    rows = await roles.superuser.fetch(
        "SELECT rolname, rolsuper, rolbypassrls, rolcreaterole, rolcanlogin"
        " FROM pg_roles WHERE rolname LIKE 'everturn%'"
    )

    assert {row["rolname"] for row in rows} == {
        "everturn_owner",
        "everturn_ingress",
        "everturn_worker",
        "everturn_dispatch",
    }
    assert not any(row["rolsuper"] or row["rolbypassrls"] or row["rolcreaterole"] for row in rows)
    assert [row["rolname"] for row in rows if not row["rolcanlogin"]] == ["everturn_dispatch"]


async def test_every_table_forces_its_policies(roles: Roles) -> None:
    rows = await roles.superuser.fetch(
        "SELECT relname, relrowsecurity AND relforcerowsecurity AS forced FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'"
    )

    tables = {
        *TABLES,
        *CREDENTIAL_TABLES,
        *KNOWLEDGE_TABLES,
        *PROJECT_TABLES,
        "retention_limit",
        "usage_total",
        "bundle",
        "bundle_widget_file",
    }
    assert {row["relname"] for row in rows if row["forced"]} == {row["relname"] for row in rows} == tables


async def test_definer_functions_belong_to_dispatch_and_pin_their_search_path(roles: Roles, repository: Path) -> None:
    files = (repository / "migrations" / "sql" / "functions").glob("*.sql")
    written = [re.split(r"^CREATE OR REPLACE FUNCTION (\w+)", file.read_text(), flags=re.MULTILINE) for file in files]
    definers = {
        name
        for _, *parts in written
        for name, definition in zip(parts[::2], parts[1::2], strict=True)
        if "SECURITY DEFINER" in definition
    }
    rows = await roles.superuser.fetch(
        "SELECT proname, pg_get_userbyid(proowner) AS owner, proconfig FROM pg_proc"
        " WHERE pronamespace = 'public'::regnamespace AND prosecdef"
    )

    assert {row["proname"] for row in rows} == definers
    assert {row["owner"] for row in rows} == {"everturn_dispatch"}
    assert all("search_path=public, pg_temp" in row["proconfig"] for row in rows)


async def test_the_page_of_roles_names_every_definer_function_and_its_callers(roles: Roles, repository: Path) -> None:
    page = (repository / "docs/subsystems/database-roles.md").read_text()
    _, _, functions = page.partition("## Functions that work across tenants")
    rows = [line.split("|")[1:3] for line in functions.splitlines() if line.startswith("| `")]

    documented: dict[str, set[str]] = {}
    for names, callers in rows:
        documented |= {name: set(re.findall("ingress|worker", callers)) for name in re.findall("`(.+?)`", names)}
    real: dict[str, set[str]] = {}
    for name, caller in await roles.superuser.fetch(
        "SELECT p.proname, CASE a.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(a.grantee) END FROM pg_proc p"
        " LEFT JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a ON a.grantee <> p.proowner"
        " WHERE p.pronamespace = 'public'::regnamespace AND p.prosecdef"
    ):
        real.setdefault(name, set()).update({caller.removeprefix("everturn_")} if caller else ())

    assert documented == real


async def test_the_owner_sees_no_rows(ann: Ann, database: DatabaseUrls) -> None:
    owner = await asyncpg.connect(database.owner)

    seen = [await owner.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES]

    await owner.close()
    assert seen == [0] * len(TABLES)

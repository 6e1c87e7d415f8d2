"""Chooses the drivers and assembles the parts of one ingress process."""

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from datetime import date, timedelta
from pathlib import Path

from everturn.accounts.credentials import CredentialAdmin, Credentials
from everturn.accounts.postgres import PostgresCredentialAdmin, PostgresCredentials, PostgresUsageReport
from everturn.accounts.usage import UsageTotal
from everturn.bundles.postgres import PostgresBundles
from everturn.conversations.postgres import PostgresConversations
from everturn.core.clock import Clock, SystemClock, now_ms, open_clock
from everturn.core.ids import ConversationId, RandomIds
from everturn.core.trace_export import open_tracing
from everturn.feedback.postgres import PostgresFeedback
from everturn.files.opening import open_objects
from everturn.files.postgres import PostgresArtifacts, PostgresScans
from everturn.history.postgres import PostgresWorkspaceChanges
from everturn.history.repository import open_histories
from everturn.knowledge.postgres_collections import PostgresCollections
from everturn.lifecycle.erasure import Remains, find_remains
from everturn.lifecycle.orphans import SweepParts
from everturn.lifecycle.postgres_erasure import PostgresObjectRows, PostgresRemainingRows
from everturn.lifecycle.postgres_exports import PostgresExports
from everturn.lifecycle.postgres_forks import PostgresForks
from everturn.mcp_connections.postgres import PostgresConnections
from everturn.memory.encoders.opening import EmbedderChoice, open_embedder, resolve_embedder
from everturn.memory.postgres_memories import PostgresUserMemories
from everturn.memory.postgres_search import PostgresMemorySearch
from everturn.postgres.pool import open_database
from everturn.queue.model import QueueCaps
from everturn.queue.postgres import PostgresQueue
from everturn.redis_drivers import open_redis_drivers
from everturn.skills.postgres import PostgresProjectSkills
from everturn.turns import postgres_explaining
from everturn.turns.explaining import TurnState
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_reading import PostgresTurns
from ingress.app import Parts
from ingress.attachments.antivirus import Antivirus, open_antivirus
from ingress.attachments.rescan import Rescan
from ingress.attachments.structure.checks import open_checks
from ingress.auth.gate import AuthGate, AuthMethods
from ingress.auth.origins import Origins
from ingress.auth.revocation import MAX_AGE_S, RevocationChecker
from ingress.auth.signed_tokens import EmbedTickets, Guests, Tickets, TokenSigner
from ingress.auth.tokens import (
    PUBLIC_ALGORITHMS,
    SHARED_ALGORITHMS,
    JwksFetch,
    JwksKeys,
    KeySource,
    StaticKey,
    TokenVerifier,
)
from ingress.bounds import BOUNDS, GUEST_ADDRESS_PART, Bounds
from ingress.metrics import IngressMetrics
from ingress.settings import (
    MIN_SECRET_BYTES,
    IngressSettings,
    SharedConfig,
    load_config,
    load_operator_url,
    read_origins,
)
from ingress.web import load_bundle

POOL_SIZE = 16


@asynccontextmanager
async def open_parts(settings: IngressSettings, bounds: Bounds = BOUNDS) -> AsyncGenerator[Parts]:
    """Open all parts; they connect on first use and are closed at the end.

    Raises Invalid if a setting can't be used.
    """
    config = load_config(settings.config_file)
    clock = open_clock(settings.clock_steps)
    process = f"ingress:{socket.gethostname()[:40]}:{os.getpid()}"
    async with (
        AsyncExitStack() as stack,
        open_database(settings.database_url, pool_size=POOL_SIZE, application_name="ingress") as database,
        open_redis_drivers(settings.redis_url, name=process) as redis,
        open_checks() as structure,
        open_tracing("everturn-ingress", settings.otlp_endpoint) as tracing,
    ):
        signer, bundles = build_signer(settings), PostgresBundles(database)
        antivirus = stack.enter_context(open_chosen_antivirus(settings))
        objects = stack.enter_context(open_objects(settings.objects_url))
        changes = PostgresWorkspaceChanges(database)
        histories = await stack.enter_async_context(open_histories(changes, objects))
        embedder = await stack.enter_async_context(open_embedder(choose_encoder(settings, config)))
        yield Parts(
            settings=settings,
            bounds=bounds,
            auth=build_gate(settings, bounds, PostgresCredentials(database), clock, signer),
            signer=signer,
            embed=config.embed,
            antivirus=antivirus,
            structure=structure,
            conversations=PostgresConversations(database),
            inbox=PostgresInbox(
                database,
                caps=QueueCaps(settings.queue_max),
                upload_limit=timedelta(seconds=bounds.upload_s),
            ),
            turns=PostgresTurns(database),
            feedback=PostgresFeedback(database),
            exports=PostgresExports(database),
            forks=PostgresForks(database),
            histories=histories,
            artifacts=PostgresArtifacts(database),
            objects=objects,
            doorbells=redis.doorbells,
            notifications=redis.notifications,
            hints=redis.hints,
            events=redis.event_reader,
            event_writer=redis.event_writer,
            clock=clock,
            ids=RandomIds(lambda: now_ms(clock)),
            metrics=IngressMetrics(),
            check_database=database.check,
            check_database_disk=database.check_disk,
            presences=redis.presences,
            collections=PostgresCollections(database),
            skills=PostgresProjectSkills(database),
            memories=PostgresUserMemories(database),
            connections=PostgresConnections(database),
            finder=PostgresMemorySearch(database),
            embedder=embedder,
            buckets=redis.token_buckets,
            stream_memory=redis.memory,
            queue=PostgresQueue(database),
            web=load_bundle(settings.web_dist) if settings.web_dist else None,
            load_bundles=bundles.load_listed,
            operations=redis.operations,
            load_widget_file=bundles.load_widget_file,
            tracing=tracing,
        )


@asynccontextmanager
async def open_remains(settings: IngressSettings, conversation_id: ConversationId) -> AsyncGenerator[Remains]:
    """Find what is left of an erased conversation."""
    async with (
        open_database(settings.database_url, pool_size=1, application_name="verify-erasure") as database,
        open_redis_drivers(settings.redis_url, name=f"verify-erasure:{os.getpid()}") as redis,
    ):
        with open_objects(settings.objects_url) as objects:
            rows = PostgresRemainingRows(database)
            yield await find_remains(rows, redis.event_reader, objects, conversation_id)


@asynccontextmanager
async def open_operator() -> AsyncGenerator[CredentialAdmin]:
    """Open what operator commands use. Raises Invalid if DATABASE_OWNER_URL is not set."""
    url = load_operator_url()
    async with open_database(url, pool_size=1, application_name="operator") as database:
        yield PostgresCredentialAdmin(database)


async def load_usage(tenant: str | None, start: date, end: date, limit: int) -> tuple[UsageTotal, ...]:
    """Load the usage of one tenant or of all. Raises Invalid if DATABASE_OWNER_URL is not set."""
    async with open_database(load_operator_url(), pool_size=1, application_name="usage") as database:
        return await PostgresUsageReport(database).load(tenant=tenant, start=start, end=end, limit=limit)


async def load_turn_state(turn_or_conversation: str) -> TurnState:
    """Load the state of a turn. Raises NotFound; Invalid if DATABASE_OWNER_URL is not set."""
    async with open_database(load_operator_url(), pool_size=1, application_name="explain-turn") as database:
        return await postgres_explaining.load_turn_state(database, turn_or_conversation)


@asynccontextmanager
async def open_sweep(settings: IngressSettings) -> AsyncGenerator[SweepParts]:
    """Open what the sweeper of objects uses."""
    async with open_database(settings.database_url, pool_size=1, application_name="sweeper") as database:
        with open_objects(settings.objects_url) as objects:
            yield SweepParts(objects, PostgresObjectRows(database).load_orphans, SystemClock())


@asynccontextmanager
async def open_rescan(settings: IngressSettings) -> AsyncGenerator[Rescan]:
    """Open what `rescan` and `revoke` use. Raises Invalid if DATABASE_OWNER_URL is not set."""
    url = load_operator_url()
    async with open_database(url, pool_size=1, application_name="rescan") as database:
        with open_objects(settings.objects_url) as objects, open_chosen_antivirus(settings) as antivirus:
            yield Rescan(PostgresScans(database), objects, antivirus)


def prepare_server(admin_url: str, owner_url: str, ingress_url: str, worker_url: str) -> None:
    """Create the roles and the database of these URLs. Raises EverturnError."""
    from everturn.postgres.migrating import run_server_preparation

    run_server_preparation(admin_url, owner_url, ingress_url, worker_url)


def migrate_schema(folder: Path) -> None:
    """Run the migrations of a folder. Raises EverturnError."""
    from everturn.postgres import migrating

    migrating.migrate_schema(folder)


def build_signer(settings: IngressSettings) -> TokenSigner:
    """Build the signer of this server's own tokens and tickets."""
    secret = settings.signing_secret
    return TokenSigner(secret.get_secret_value().encode() if secret else os.urandom(MIN_SECRET_BYTES))


def build_gate(
    settings: IngressSettings, bounds: Bounds, credentials: Credentials, clock: Clock, signer: TokenSigner
) -> AuthGate:
    """Build the gate with all authentication methods that the settings allow."""
    methods = AuthMethods(
        revocation=RevocationChecker(credentials, clock, max_age_s=min(MAX_AGE_S, bounds.reauthorize_s)),
        guests=Guests(
            signer,
            clock,
            scopes=settings.guest_scopes,
            per_minute=bounds.guests_per_minute,
            per_minute_of_address=max(1, bounds.guests_per_minute // GUEST_ADDRESS_PART),
        ),
        tickets=Tickets(signer, clock),
        origins=Origins(read_origins(settings.allowed_origins)),
        embedding=EmbedTickets(signer, clock),
    )
    return AuthGate(development=settings.development, verifier=build_verifier(settings), methods=methods, clock=clock)


def open_chosen_antivirus(settings: IngressSettings) -> AbstractContextManager[Antivirus]:
    """Open the antivirus that the settings choose."""
    return open_antivirus(clamd_url=settings.clamd_url, development=settings.development, av_scan=settings.av_scan)


def choose_encoder(settings: IngressSettings, config: SharedConfig) -> EmbedderChoice:
    """Choose the encoder of searches, as workers choose theirs. Raises BadEmbedderSetting."""
    return resolve_embedder(settings.embedder, config.models.roles.embedding, settings.model_environment)


def build_verifier(settings: IngressSettings) -> TokenVerifier | None:
    """Build the verifier of bearer tokens; None without keys, which only development mode allows."""
    if not (settings.has_keys and settings.auth_issuer and settings.auth_audience):
        return None
    return TokenVerifier(
        _build_keys(settings),
        issuer=settings.auth_issuer,
        audience=settings.auth_audience,
        algorithms=PUBLIC_ALGORITHMS if settings.auth_secret is None else SHARED_ALGORITHMS,
        unscoped=settings.auth_unscoped_tokens,
    )


def _build_keys(settings: IngressSettings) -> KeySource:
    if settings.auth_jwks_url:
        return JwksKeys(JwksFetch(settings.auth_jwks_url))
    if settings.auth_public_key:
        return StaticKey.from_pem(settings.auth_public_key)
    if settings.auth_secret is None:
        raise ValueError("There is no key to verify tokens with.")
    return StaticKey(settings.auth_secret.get_secret_value(), key_type="oct")

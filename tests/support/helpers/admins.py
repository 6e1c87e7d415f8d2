"""A client with the API key of an administrator of the default project, as an operator creates it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx2

from everturn.accounts.credentials import ApiKey
from everturn.accounts.postgres import PostgresCredentialAdmin
from everturn.core.identity import Principal, Role
from everturn.postgres.pool import open_database
from everturn_local.supervision.platform import Platform
from ingress.auth.api_keys import build_key_text


@asynccontextmanager
async def open_admin(platform: Platform) -> AsyncGenerator[httpx2.AsyncClient]:
    text, made = build_key_text()
    principal = Principal("default", "default", "root", frozenset({Role.ADMIN}))
    async with open_database(platform.database.owner, pool_size=1, application_name="test-operator") as owner:
        key = ApiKey(made.key_id, made.secret_hash, principal, "", datetime.now(UTC))
        await PostgresCredentialAdmin(owner).save_key(key)
    headers = {"Authorization": f"Bearer {text}"}
    async with httpx2.AsyncClient(base_url=platform.urls[0], timeout=30, headers=headers) as admin:
        yield admin

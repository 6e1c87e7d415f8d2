"""Operator commands for credentials: create, list and revoke API keys, and revoke all credentials of a user.

They need DATABASE_OWNER_URL, the migrating role: the role of the serving process can't create credentials.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

from everturn.accounts.credentials import ANY, ApiKey, CredentialAdmin
from everturn.core.clock import iso
from everturn.core.errors import EverturnError, Invalid
from everturn.core.identity import Principal, Role
from ingress.auth.api_keys import build_key_text
from ingress.auth.callers import is_scope_name, is_user_name
from ingress.operations.commands import OfflineCommand

ROLES = tuple(role.value for role in Role if role is not Role.ANONYMOUS)
MAX_LABEL_CHARS = 200
Open = Callable[[], AbstractAsyncContextManager[CredentialAdmin]]

Write = Callable[[str], object]
Action = Callable[[CredentialAdmin, argparse.Namespace, Write], Coroutine[Any, Any, int]]


def build_keys_command(open_admin: Open) -> OfflineCommand:
    """`keys create | list | revoke`."""
    actions = {"create": create_key, "list": list_keys, "revoke": revoke_key}

    def run(arguments: argparse.Namespace) -> int:
        return _run(open_admin, actions[arguments.action], arguments)

    return OfflineCommand("Create, list and revoke API keys.", run, _add_key_arguments)


def build_revoke_user_command(open_admin: Open) -> OfflineCommand:
    """`revoke-user USER`."""

    def run(arguments: argparse.Namespace) -> int:
        return _run(open_admin, revoke_user, arguments)

    return OfflineCommand("Reject all credentials issued to a user until now.", run, _add_user_arguments)


def _run(open_admin: Open, action: Action, arguments: argparse.Namespace) -> int:
    async def act() -> int:
        async with open_admin() as admin:
            return await action(admin, arguments, sys.stdout.write)

    try:
        return asyncio.run(act())
    except EverturnError as error:
        sys.stderr.write(f"ingress: {error}\n")
        return 1


def _add_key_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    create = actions.add_parser("create", help="create a key; it is shown only once")
    create.add_argument("--tenant", required=True)
    create.add_argument("--project", required=True)
    create.add_argument("--user", required=True, help="user that the key authenticates")
    create.add_argument(
        "--role", action="append", choices=ROLES, default=[], help="role in addition to registered; repeatable"
    )
    create.add_argument("--days", type=float, default=None, help="days until the key expires (default: never)")
    create.add_argument("--label", default="", help="what it is for")
    listing = actions.add_parser("list", help="list keys, newest first")
    listing.add_argument("--tenant", default=None)
    revoke = actions.add_parser("revoke", help="revoke a key; takes effect within 15 seconds")
    revoke.add_argument("key_id", help="the 16 hexadecimal digits after evk_")


def _add_user_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", help="the user: the subject of their tokens")
    parser.add_argument("--tenant", default=ANY, help="only in this tenant")
    parser.add_argument("--project", default=ANY, help="only in this project")


async def create_key(admin: CredentialAdmin, arguments: argparse.Namespace, write: Write) -> int:
    """Create a key and print it. Raises Invalid for invalid names."""
    if not (is_scope_name(arguments.tenant) and is_scope_name(arguments.project)):
        raise Invalid("A tenant or project must have 1 to 64 letters, digits, `.`, `_` and `-`.")
    if not is_user_name(arguments.user):
        raise Invalid("A user's name must have 1 to 128 letters, digits and `._@+|=~-`.")
    if len(arguments.label) > MAX_LABEL_CHARS or not arguments.label.isprintable():
        raise Invalid(f"A label can have at most {MAX_LABEL_CHARS} printable characters.")
    if arguments.days is not None and not 0 < arguments.days <= 36_500:
        raise Invalid("--days must be more than 0 and at most 36500.")
    text, made = build_key_text()
    created = datetime.now(UTC)
    roles = frozenset(map(Role, arguments.role)) | {Role.REGISTERED}
    expires = None if arguments.days is None else created + timedelta(days=arguments.days)
    owner = Principal(arguments.tenant, arguments.project, arguments.user, roles)
    await admin.save_key(ApiKey(made.key_id, made.secret_hash, owner, arguments.label, created, expires))
    write(f"{text}\n")
    sys.stderr.write("Save this key now: only its hash is stored, and it is not shown again.\n")
    return 0


async def list_keys(admin: CredentialAdmin, arguments: argparse.Namespace, write: Write) -> int:
    """One line per key, fields separated by tabs; no secrets."""
    write("id\tstate\ttenant/project\tuser\troles\tcreated\texpires\tlast used\tlabel\n")
    for key in await admin.load_keys(tenant=arguments.tenant):
        fields = (
            key.key_id,
            _state(key, datetime.now(UTC)),
            f"{key.owner.tenant}/{key.owner.project}",
            key.owner.user_id,
            ",".join(sorted(key.owner.roles)),
            iso(key.created_at),
            iso(key.expires_at) if key.expires_at else "-",
            f"{key.last_used:%Y-%m-%d}" if key.last_used else "-",
            key.label,
        )
        write("\t".join(fields) + "\n")
    return 0


async def revoke_key(admin: CredentialAdmin, arguments: argparse.Namespace, write: Write) -> int:
    """Exit status 1 when the key does not exist or was already revoked."""
    if not await admin.revoke_key(arguments.key_id):
        sys.stderr.write("The key does not exist or is already revoked.\n")
        return 1
    write(f"{arguments.key_id} is revoked.\n")
    return 0


async def revoke_user(admin: CredentialAdmin, arguments: argparse.Namespace, write: Write) -> int:
    """Reject tokens, keys, guest tokens and tickets issued before now; a new login still works."""
    if not is_user_name(arguments.user):
        raise Invalid("A user's name must have 1 to 128 letters, digits and `._@+|=~-`.")
    for name in (arguments.tenant, arguments.project):
        if name != ANY and not is_scope_name(name):
            raise Invalid("A tenant or project must have 1 to 64 letters, digits, `.`, `_` and `-`.")
    moment = await admin.save_cutoff(arguments.user, tenant=arguments.tenant, project=arguments.project)
    write(f"Credentials issued to {arguments.user} before {iso(moment)} are rejected.\n")
    return 0


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "good"

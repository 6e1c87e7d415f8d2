"""The answers of accepted work, kept by idempotency key: a row stands before the work it guards and commits with it."""

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.ports.inbox import IdempotencyKey, KeyBusy, KeyReused
from everturn.postgres.database import Connection, LockTimeout, translated

_TAKE = """
INSERT INTO idempotency (tenant, project, user_id, route, key, request_hash, conversation_id, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + interval '24 hours')
ON CONFLICT (tenant, project, user_id, route, key) DO UPDATE
   SET request_hash = EXCLUDED.request_hash, conversation_id = EXCLUDED.conversation_id,
       expires_at = EXCLUDED.expires_at
 WHERE idempotency.expires_at < clock_timestamp()
RETURNING true
"""
_LOAD = "SELECT request_hash, response FROM idempotency WHERE route = $1 AND key = $2"
_LOAD_KEPT = f"{_LOAD} AND expires_at >= clock_timestamp()"
_SAVE = "UPDATE idempotency SET response = $3, conversation_id = $4 WHERE route = $1 AND key = $2"


async def take_key(
    transaction: Connection, principal: Principal, conversation_id: ConversationId, key: IdempotencyKey | None
) -> str | None:
    """None when the key is ours now, which a twin then waits for; the first answer when it was used for the same.

    Raises KeyReused, KeyBusy.
    """
    if key is None:
        return None
    owner = principal.owner
    try:
        with translated():
            taken = await transaction.fetchval(_TAKE, *owner, key.route, key.key, key.request_hash, conversation_id)
    except LockTimeout as error:
        raise KeyBusy() from error
    if taken:
        return None
    row = await transaction.fetchrow(_LOAD, key.route, key.key)
    if row is None or row["request_hash"] != key.request_hash:
        raise KeyReused()
    return str(row["response"])


async def try_load_response(transaction: Connection, key: IdempotencyKey) -> str | None:
    """The first answer to the same request, where it is kept; takes no key. Raises KeyReused."""
    row = await transaction.fetchrow(_LOAD_KEPT, key.route, key.key)
    if row is None:
        return None
    if row["request_hash"] != key.request_hash:
        raise KeyReused()
    return str(row["response"])


async def save_response(
    transaction: Connection, key: IdempotencyKey | None, response: str, conversation_id: ConversationId
) -> None:
    """Keep the answer for whoever asks again; it goes with the conversation."""
    if key is not None:
        await transaction.execute(_SAVE, key.route, key.key, response, conversation_id)

"""A key guards one piece of work; its answer is given again."""

import pytest

from everturn.turns.inbox import IdempotencyKey, KeyReused
from everturn.turns.postgres_inbox import save_response, take_key
from everturn_testing.database_roles import Roles
from everturn_testing.turns.stage import ANN, Stage

KEY = IdempotencyKey("fork", "key-1", "hash")


async def test_the_first_answer_is_given_again_and_another_body_is_refused(roles: Roles, postgres_stage: Stage) -> None:
    conversation = postgres_stage.ids.conversation()
    async with roles.ingress.transaction(ANN) as transaction:
        assert await take_key(transaction, ANN, conversation, KEY) is None
        await save_response(transaction, KEY, "the answer", conversation)

    async with roles.ingress.transaction(ANN) as transaction:
        assert await take_key(transaction, ANN, conversation, KEY) == "the answer"
        with pytest.raises(KeyReused):
            await take_key(transaction, ANN, conversation, IdempotencyKey("fork", "key-1", "other"))


async def test_without_a_key_nothing_is_kept(roles: Roles, postgres_stage: Stage) -> None:
    conversation = postgres_stage.ids.conversation()

    async with roles.ingress.transaction(ANN) as transaction:
        assert await take_key(transaction, ANN, conversation, None) is None
        await save_response(transaction, None, "the answer", conversation)
        assert not await transaction.fetchval(
            "SELECT count(*) FROM idempotency WHERE conversation_id = $1", conversation
        )

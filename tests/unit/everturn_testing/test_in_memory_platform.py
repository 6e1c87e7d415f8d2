"""The rows of the in-memory platform belong to their principals."""

from dataclasses import replace

import pytest

from everturn.core.errors import NotFound
from everturn.core.identity import Principal, Role
from everturn.core.ids import ConversationId
from everturn.timeline.blocks import GENESIS_HASH
from everturn_testing.in_memory_platform import ConversationRow, MemoryPlatform

ANN = Principal("acme", "support", "ann")
CONVERSATION = ConversationId("conv_1")


def test_an_empty_timeline_begins_at_one_after_the_genesis() -> None:
    row = ConversationRow(CONVERSATION, ANN)

    assert (row.next_seq, row.last_hash) == (1, GENESIS_HASH)


def test_a_row_is_seen_by_its_owner_whatever_the_roles() -> None:
    platform = MemoryPlatform()
    platform.conversations[CONVERSATION] = ConversationRow(CONVERSATION, ANN)

    assert platform.conversation(replace(ANN, roles=frozenset({Role.ADMIN})), CONVERSATION).id == CONVERSATION
    for stranger in (replace(ANN, tenant="x"), replace(ANN, project="x"), replace(ANN, user_id="x")):
        with pytest.raises(NotFound):
            platform.conversation(stranger, CONVERSATION)

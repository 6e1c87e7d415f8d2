"""An inbox that loses the data of an event breaks the contract."""

from dataclasses import replace

import pytest

from everturn.core.ids import ConversationId
from everturn.timeline.turns import ExternalEvent
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.external_events_contract import ExternalEventsContract, TargetsContract
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox


class Dull(MemoryInbox):
    async def accept_signal(self, principal, conversation_id: ConversationId, signal, key):
        return await super().accept_signal(
            principal, conversation_id, replace(signal, event=ExternalEvent("form")), key
        )


class Careless(MemoryInbox):
    def _check_target(self, row, message):
        """Takes every message."""


async def test_an_inbox_that_drops_payloads_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, inbox=Dull(platform))

    with pytest.raises(AssertionError):
        await ExternalEventsContract().test_an_event_to_a_running_turn_is_a_signal_with_its_data(broken)


async def test_an_inbox_that_accepts_foreign_targets_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, inbox=Careless(platform))

    with pytest.raises(pytest.fail.Exception):
        await TargetsContract().test_a_message_for_a_turn_of_another_conversation_is_refused(broken)

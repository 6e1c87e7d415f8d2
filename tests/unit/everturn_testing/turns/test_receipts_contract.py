"""An inbox that lets settled signals be changed breaks the contract."""

from dataclasses import replace

import pytest

from everturn.timeline.turns import SignalState
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.receipts_contract import ReceiptsContract


class Pliable(MemoryInbox):
    async def save_signal_text(self, principal, conversation_id, signal_id, text):
        row = self._signal(principal, conversation_id, signal_id)
        row.signal = replace(row.signal, text=text)
        return row.signal


async def test_an_inbox_that_changes_settled_signals_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, inbox=Pliable(platform))

    with pytest.raises(pytest.fail.Exception):
        await ReceiptsContract().test_a_settled_signal_can_not_be_changed(broken, SignalState.APPLIED)

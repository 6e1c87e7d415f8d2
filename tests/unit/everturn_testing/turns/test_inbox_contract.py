"""An inbox that forgets keys breaks the contract."""

from dataclasses import replace

import pytest

from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.inbox_contract import InboxContract


class Forgetful(MemoryInbox):
    def _keep(self, principal, key, receipt):
        return receipt


async def test_an_inbox_that_forgets_keys_is_noticed(harness: Harness, platform: MemoryPlatform) -> None:
    broken = replace(harness, inbox=Forgetful(platform))

    with pytest.raises(AssertionError):
        await InboxContract().test_the_same_key_gets_the_first_answer_and_does_nothing(broken)

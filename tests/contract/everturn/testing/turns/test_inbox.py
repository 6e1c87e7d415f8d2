"""The in-memory Inbox keeps the contract that Postgres keeps."""

from dataclasses import replace

import pytest

from everturn.turns.inbox import TenantFull
from everturn_testing.turns.external_events_contract import ExternalEventsContract, TargetsContract
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.inbox_contract import InboxContract, UploadsContract
from everturn_testing.turns.platform import MemoryPlatform
from everturn_testing.turns.receipts_contract import ReceiptsContract
from everturn_testing.turns.stage import Stage


class TestMemoryInbox(InboxContract, UploadsContract, ExternalEventsContract, TargetsContract, ReceiptsContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage


async def test_beyond_what_a_tenant_may_nothing_is_stored(memory_stage: Stage, memory_platform: MemoryPlatform) -> None:
    stage = replace(memory_stage, inbox=MemoryInbox(memory_platform, tenant_max=2))
    for _ in range(2):
        await stage.say()

    with pytest.raises(TenantFull):
        await stage.say()

    assert len(memory_platform.conversations) == 2

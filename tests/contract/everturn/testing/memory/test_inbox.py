"""The in-memory Inbox keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.contracts.external_events import ExternalEventsContract, TargetsContract
from everturn.testing.contracts.inbox import InboxContract
from everturn.testing.contracts.receipts import ReceiptsContract
from everturn.testing.contracts.stage import Stage


class TestMemoryInbox(InboxContract, ExternalEventsContract, TargetsContract, ReceiptsContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage

"""A turn that has begun, and history behind it."""

import pytest

from chat_proc.workspace.loading import WorkspaceHistory
from everturn_testing.files.stored_files import StoredFiles
from everturn_testing.timeline import TimelineBuilder


@pytest.fixture
def history(stored: StoredFiles) -> WorkspaceHistory:
    return WorkspaceHistory(stored.artifacts)


@pytest.fixture
def timeline() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Go on")
    timeline.start_round()
    return timeline

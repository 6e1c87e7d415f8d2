"""A turn that has begun, and history behind it."""

import pytest

from chat_proc.workspace.loading import ArtifactHistory
from everturn_testing.files.stored_files import StoredFiles
from everturn_testing.timeline import TimelineBuilder


@pytest.fixture
def history(stored: StoredFiles) -> ArtifactHistory:
    return ArtifactHistory(stored.artifacts)


@pytest.fixture
def timeline() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_2", "Go on")
    timeline.start_round()
    return timeline

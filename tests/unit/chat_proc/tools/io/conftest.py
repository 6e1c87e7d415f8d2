"""A turn with one attached file."""

import pytest

from everturn_testing.timeline import TimelineBuilder, build_file

CSV = b"a,b\n1,2\n"


@pytest.fixture
def timeline(objects) -> TimelineBuilder:
    csv = build_file("turn_1", "sales.csv", CSV, mime="text/csv")
    objects.stored[csv.object_key] = CSV
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Chart it", csv)
    return timeline

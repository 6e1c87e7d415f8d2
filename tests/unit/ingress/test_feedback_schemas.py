"""The schema of feedback."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from ingress.feedback import FeedbackIn

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def test_a_time_in_the_past_is_kept_and_one_ahead_counts_as_now() -> None:
    past = FeedbackIn.model_validate({"reaction": "ok", "ts": "2026-04-30T00:00:00Z"})
    ahead = FeedbackIn.model_validate({"reaction": "ok", "ts": "2030-04-30T00:00:00Z"})

    assert past.moment(NOW) == NOW - timedelta(days=1)
    assert ahead.moment(NOW) == NOW
    assert FeedbackIn.model_validate({"reaction": "ok"}).moment(NOW) == NOW


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reaction": "good"},
        {"reaction": "ok", "confidence": 0.5},
        {"reaction": None, "origin": "machine"},
        {"reaction": "ok", "origin": "machine", "confidence": 1.5},
        {"reaction": "ok", "ts": "2026-04-30T00:00:00"},
        {"reaction": "ok", "text": "x" * 10_001},
        {"reaction": "ok", "user_id": "bob"},
    ],
)
def test_invalid_feedback_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FeedbackIn.model_validate(fields)

"""The schemas of conversations."""

import pytest
from pydantic import ValidationError

from ingress.conversations.schemas import ConversationIn, ConversationPatch, FetchIn


@pytest.mark.parametrize("title", ["a\nb", "a\x00", "\ud800", "x" * 301, 7])
def test_a_title_is_one_short_line(title: object) -> None:
    with pytest.raises(ValidationError):
        ConversationIn.model_validate({"title": title})


def test_a_patch_changes_title_or_archive_and_nothing_else() -> None:
    assert ConversationPatch.model_validate({"archived": True}).title is None
    with pytest.raises(ValidationError):
        ConversationPatch.model_validate({"archived": 1})
    with pytest.raises(ValidationError):
        ConversationPatch.model_validate({"state": "idle"})


@pytest.mark.parametrize(
    "changes",
    [{"limit": 0}, {"limit": 101}, {"limit": True}, {"turn_ids": []}, {"turn_ids": ["x"] * 101}],
)
def test_a_fetch_is_bounded(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FetchIn.model_validate({"conversation_id": "conv_1"} | changes)

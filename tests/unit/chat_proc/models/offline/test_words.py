"""Small words carry no meaning."""

from chat_proc.models.offline.words import significant_words


def test_only_words_with_meaning_are_kept() -> None:
    assert significant_words("What was the total of the Regions?") == {"total", "region"}

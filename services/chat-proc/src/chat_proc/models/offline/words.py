"""The significant words of a text, without stop words."""

from functools import cache
from importlib.resources import files

from chat_proc.models.offline.columns import plain


def significant_words(text: str) -> set[str]:
    """Lower-case words without plural endings and without stop words."""
    return set(plain(text).split()) - _load_stop_words()


@cache
def _load_stop_words() -> frozenset[str]:
    text = files("chat_proc.models.offline").joinpath("templates/stop_words.txt").read_text(encoding="utf-8")
    return frozenset(plain(text).split())

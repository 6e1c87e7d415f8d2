"""The words by which a text is searched."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

MAX_WORD_CHARS = 40
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
"""Thai, Lao, Burmese, Khmer, kana and Chinese characters: no blanks separate their words."""


def find_words(text: str, *, limit: int) -> tuple[str, ...]:
    """The different words of a text in the order of their first use, at most `limit`.

    Accents and case are ignored: `Café` and `cafe` are one word. `snake_case` is two words.

    Words are folded, limited in length, and cut into pairs in scripts without blanks, as search compares them.
    """
    found: dict[str, None] = {}
    for word in _split(fold(text)):
        found.setdefault(word[:MAX_WORD_CHARS])
        if len(found) >= limit:
            break
    return tuple(found)


def fold(text: str) -> str:
    """The text without case, width and accents.

    It works character by character: normalizing a run of combining characters takes quadratic time, and they are only
    left out here.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", "".join(map(_fold_char, text)))


@lru_cache(maxsize=4096)
def _fold_char(char: str) -> str:
    # Twice, because decomposition can produce a capital letter, and folding a letter can produce two.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _split(text: str) -> Iterable[str]:
    for match in _WORD.finditer(text):
        word = match.group()
        start = 0
        for run in _UNSPACED.finditer(word):
            if run.start() > start:
                yield word[start : run.start()]
            yield from _pairs(run.group())
            start = run.end()
        if start < len(word):
            yield word[start:]


def _pairs(run: str) -> Iterable[str]:
    return (run[index : index + 2] for index in range(max(1, len(run) - 1)))

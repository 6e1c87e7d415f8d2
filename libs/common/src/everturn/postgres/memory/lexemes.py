"""The words of snippets as the index of words holds them: marked with their owner, anchors besides with their own mark.

A word of one person is another entry than the same word of another one, so a search never walks through others' rows.
"""

from hashlib import sha256

from everturn.model.identity import Principal
from everturn.model.memory.snippets import Snippet
from everturn.model.memory.words import find_words

MAX_SNIPPET_WORDS = 250
MAX_QUERY_WORDS = 16
WORD_WEIGHT = 1.0
ANCHOR_WEIGHT = 3.0
"""A word among the anchors counts four times in all, for it is a word of the snippet too."""


def build_lexemes(principal: Principal, snippet: Snippet) -> list[str]:
    """What is stored of a snippet."""
    owner = _mark_of(principal)
    anchors = find_words(snippet.anchors, limit=MAX_SNIPPET_WORDS)
    words = find_words(f"{snippet.anchors}\n{snippet.text}", limit=MAX_SNIPPET_WORDS)
    return [f"{owner}:{word}" for word in words] + [f"{owner}!{word}" for word in anchors]


def build_query_lexemes(principal: Principal, text: str) -> tuple[list[str], list[float]]:
    """What a question is looked up by, and what each is worth."""
    owner = _mark_of(principal)
    words = find_words(text, limit=MAX_QUERY_WORDS)
    lexemes = [f"{owner}:{word}" for word in words] + [f"{owner}!{word}" for word in words]
    return lexemes, [WORD_WEIGHT] * len(words) + [ANCHOR_WEIGHT] * len(words)


def _mark_of(principal: Principal) -> str:
    """Not a secret and no safeguard: every search filters by the principal as well."""
    return sha256("\x1f".join(principal.owner).encode()).hexdigest()[:10]

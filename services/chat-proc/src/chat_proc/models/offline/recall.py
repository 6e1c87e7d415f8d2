"""Answers questions about the conversation itself from the parts that the prompt still shows."""

import re
from collections.abc import Iterator

from chat_proc.models.offline.columns import plain
from chat_proc.models.offline.reading import Conversation, Turn
from chat_proc.models.offline.words import significant_words

_ASKED = re.compile(
    r"\b(?:what|which)\b.{0,30}\b(?:i (?:\w+ )?(?:ask|say|said|want|tell|write)"
    r"|my (?:\w+ )?(?:question|message|prompt|request))",
    re.I,
)
_MEMORY = re.compile(
    r"\b(?:remember|remind me|recall|did (?:i|you) (?:say|tell|mention|answer|find)"
    r"|(?:i|you) (?:said|told|mentioned|found)|what(?:'s| is| was| were) (?:my|your))\b",
    re.I,
)
_NOTED = re.compile(r"^\W*(?:please )?(?:remember|note|keep in mind)\b|\bmy \w+ is\b|\bcall me \w", re.I)
_TELLS = re.compile(r"\b(?:i|my|we|our|is|are|was|were|has|have|remember|note)\b", re.I)
_PAST = re.compile(r"\b(?:what|which|how (?:much|many)|who|where)\b.{0,30}\b(?:was|were|did)\b", re.I)
_SAYS_NOTHING = re.compile(
    r"\?$|^\||^[“>#`_]|^(?:Goal|Outcome|Facts): |offline model"
    r"|^(?:From|Files|Noted|Earlier|Before this|You (?:first )?asked)\b"
)
INTRODUCTION = "I am Everturn's offline model"
"""An answer that introduces the model contains nothing of the conversation."""
_MAX_QUOTE_CHARS = 300


def recall(question: str, conversation: Conversation) -> str | None:
    """An answer from earlier turns, or None if the question is not about them or nothing matches."""
    earlier = conversation.turns[:-1]
    if is_about_prompts(question):
        return _recall_prompts(question, earlier)
    if is_note(question):
        return None
    if is_about_memory(question):
        return _quote(_find_lines(question, conversation, every_word=False))
    if _PAST.search(question):
        return _quote(_find_lines(question, conversation, every_word=True))
    return None


def is_about_prompts(question: str) -> bool:
    """Whether the question asks which messages the user sent."""
    return _ASKED.search(question) is not None and " about " not in question.casefold()


def is_about_memory(question: str) -> bool:
    """Whether the question is about earlier messages, whether or not they are found."""
    return _MEMORY.search(question) is not None


def is_note(text: str) -> bool:
    """Whether the user states something to remember rather than asks."""
    return _NOTED.search(text) is not None and "?" not in text


def recall_note(question: str, conversation: Conversation) -> str | None:
    """The user's notes that share a word with the question."""
    notes = [ask.text for turn in conversation.turns[:-1] for ask in turn.asks if is_note(ask.text)]
    words = significant_words(question)
    return _quote([note for note in notes if words & significant_words(note)][-3:])


def _recall_prompts(question: str, earlier: tuple[Turn, ...]) -> str | None:
    prompts = [turn.asks[0].text for turn in earlier if turn.asks]
    if not prompts:
        return "This is the first message of our conversation that I can see."
    if re.search(r"\ball\b|\bso far\b|\bquestions\b|\bmessages\b", question, re.I):
        return "You asked:\n" + "\n".join(f"{n}. {_shorten(text)}" for n, text in enumerate(prompts[-20:], 1))
    if re.search(r"\bfirst\b|\bbegin|\bstart", question, re.I):
        return f"You first asked: “{_shorten(prompts[0])}”"
    return f"Before this you asked: “{_shorten(prompts[-1])}”"


def _find_lines(question: str, conversation: Conversation, *, every_word: bool) -> list[str]:
    """The earlier lines that share the most words with the question, newest first, at most three."""
    words = significant_words(question)
    scored = [(len(words & set(plain(line).split())), line) for line in _earlier_lines(conversation)]
    best = max((score for score, _ in scored), default=0)
    if not words or best == 0 or (every_word and best < len(words)):
        return []
    lines = [line for score, line in scored if score == best]
    return list(dict.fromkeys(reversed(lines)))[:3]


def _earlier_lines(conversation: Conversation) -> Iterator[str]:
    """Statements by either side. Questions are skipped, as are our own quotes, tables and summaries."""
    texts = list(conversation.memories)
    for turn in conversation.turns[:-1]:
        if INTRODUCTION in turn.completion:
            continue
        texts += [*(ask.text for ask in turn.asks if _TELLS.search(ask.text)), turn.completion]
    for text in texts:
        for line in re.split(r"\n|(?<=[.!?])\s+", text):
            told = line.strip(" -*•")
            if told and not _SAYS_NOTHING.search(told):
                yield told


def _quote(lines: list[str]) -> str | None:
    if not lines:
        return None
    quotes = "\n".join(f"- “{_shorten(line)}”" for line in lines)
    return f"Earlier in this conversation:\n{quotes}"


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_QUOTE_CHARS else flat[: _MAX_QUOTE_CHARS - 1] + "…"

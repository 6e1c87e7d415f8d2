"""Greetings, thanks and goodbyes, and the replies to them."""

import re

_NAME = r"(?:[\s,]+(?:there|all|everyone|everturn|you|me|the user|to me|to you|to (?:the )?\w+))?"
_LEAD = r"^\W*(?:please\s+|then\s+|and\s+)?"
_END = r"[\s.!?,:;)(]*$"
_HELLO = r"(?:hi+|hello|hey+|hallo|greetings|good (?:morning|afternoon|evening|day)|moin|howdy|greet|say (?:hi|hello))"
_BYE = r"(?:good ?bye|bye(?: bye)?|see you(?: later)?|cheers|ciao|good night|say (?:good ?bye|bye|farewell)|farewell)"
_THANKS = (
    r"(?:ok(?:ay)?[,\s]+|great[,\s]+)?(?:thanks|thank (?:you|me)|thx|many thanks)"
    r"(?: (?:a lot|so much|very much|a bunch))?(?: for .{1,40})?"
)
_FINE = r"(?:ok(?:ay)?|great|good|nice|perfect|cool|well done|awesome|fine|super)(?: (?:job|work|answer))?"
_HOW = r"(?:how are you(?: doing)?(?: today)?|how is it going|how do you do|what'?s up)"
_REPLIES = (
    (_HELLO, "Hello!"),
    (_BYE, "Goodbye!"),
    (_THANKS, "You are welcome."),
    (_FINE, "Good. Ask me more whenever you like."),
    (_HOW, "All rules are in place, thank you."),
)
_OPENING = re.compile(rf"^\W*{_HELLO}{_NAME}\s*[,.!:\-]+\s+(?=\S)", re.IGNORECASE)
_WHO = re.compile(
    r"\b(?:what (?:else )?can you do|who are you|what are you|what can i (?:ask|do)"
    r"|how (?:do|can) (?:you|i) (?:work|use you)"
    r"|are you (?:a|an|real|human|chatgpt|claude|gpt)|which model|what model|help me get started)\b|^\W*help\W*$",
    re.IGNORECASE,
)
_MAX_CHARS = 80


def try_reply(text: str) -> str | None:
    """A polite reply; None if the text is more than a courtesy."""
    if len(text) > _MAX_CHARS:
        return None
    for words, reply in _REPLIES:
        if re.match(rf"{_LEAD}{words}{_NAME}{_END}", text, re.IGNORECASE):
            return reply
    return None


def drop_greeting(text: str) -> str:
    """The text without a leading greeting."""
    return _OPENING.sub("", text, count=1)


def asks_who(text: str) -> bool:
    """Whether the user asks what this model is or can do."""
    return _WHO.search(text) is not None

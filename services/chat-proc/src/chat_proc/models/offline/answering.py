"""Answers questions that need no program: courtesies, arithmetic, the date, earlier messages, capabilities."""

from chat_proc.models.offline.answers import render_capabilities
from chat_proc.models.offline.reading import Conversation
from chat_proc.models.offline.recall import is_about_memory, is_note, recall, recall_note
from chat_proc.models.phrases.arithmetic import try_compute
from chat_proc.models.phrases.clock import try_tell_time
from chat_proc.models.phrases.courtesy import asks_who, drop_greeting, try_reply

_NOTED = "Noted; I can quote it back to you later in this conversation."
_NOT_FOUND = "I find nothing about that earlier in this conversation."


def try_answer(text: str, conversation: Conversation) -> str | None:
    """The answer, or None if no rule matches."""
    question = drop_greeting(text)
    direct = try_tell_time(question, conversation.now_utc, conversation.timezone) or try_compute(question)
    direct = direct or try_reply(question) or recall(question, conversation)
    if direct is not None:
        return direct
    if is_note(question):
        return _NOTED
    if is_about_memory(question):
        return _NOT_FOUND
    return render_capabilities() if asks_who(question) else recall_note(question, conversation)


def is_understood(text: str, conversation: Conversation) -> bool:
    """Whether any rule matches."""
    return try_answer(text, conversation) is not None

"""Which conversation a ref is of: refs are stored without their own conversation, and told with it elsewhere. Pure."""

import re
from dataclasses import replace

from everturn.model.refs import KnowledgeRef, Ref, SkillRef

_LOCAL = re.compile(r"(?<![A-Za-z0-9_.:/-])((?:ar|tc|fi|su|ws):(?=turn_)|ar:(?=plan\.latest:)|so:(?=sources_pool\[))")


def owner_of(ref: Ref) -> str | None:
    """The conversation that a ref names; None for one that names none."""
    return None if isinstance(ref, KnowledgeRef | SkillRef) else ref.conversation


def qualify_ref(ref: Ref, conversation_id: str) -> Ref:
    """The same ref with its conversation. One that names a conversation already, or belongs to none, stays."""
    if isinstance(ref, KnowledgeRef | SkillRef) or ref.conversation is not None:
        return ref
    return replace(ref, conversation=conversation_id)


def localize_ref(ref: Ref, conversation_id: str) -> Ref:
    """The ref as it is stored in this conversation; one of another conversation stays."""
    if isinstance(ref, KnowledgeRef | SkillRef) or ref.conversation != conversation_id:
        return ref
    return replace(ref, conversation=None)


def qualify_text(text: str, conversation_id: str) -> str:
    """A text of a conversation with refs that another conversation can follow. Doing it twice changes nothing."""
    return _LOCAL.sub(rf"\g<1>{conversation_id}.", text)

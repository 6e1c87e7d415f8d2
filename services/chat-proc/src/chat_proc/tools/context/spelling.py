"""Reads the names by which a model calls things: refs, and paths of files as programs see them. Pure."""

import re
from dataclasses import dataclass

from everturn.model import refs
from everturn.model.ids import ConversationId, TurnId
from everturn.model.refs import Ref, parse_ref
from everturn.timeline.ref_owners import localize_ref, owner_of, qualify_ref

_PATH = re.compile(
    r"(?:(?P<conversation>conv_[A-Za-z0-9_-]{1,75})/)?(?:(?P<turn>turn_[A-Za-z0-9_-]{1,75})/)?"
    r"(?P<folder>files|outputs|attachments|logs|external/(?P<kind>[^/]+)/attachments/(?P<message>[^/]+))/(?P<rest>.+)",
    re.DOTALL,
)
FileName = refs.FileRef | refs.OutputRef | refs.AttachmentRef | refs.ExternalAttachmentRef | refs.LogRef


@dataclass(frozen=True, slots=True)
class Named:
    """What a name means: the ref as it is spelled inside its conversation. `conversation_id` is None for our own."""

    ref: Ref
    conversation_id: ConversationId | None = None

    @property
    def shown(self) -> str:
        """The one spelling that is told to the model."""
        return str(self.ref if self.conversation_id is None else qualify_ref(self.ref, self.conversation_id))


def read_name(text: str, conversation_id: ConversationId, turn_id: TurnId) -> Named:
    """Read a ref in any spelling, or a path. A path without a turn is one of `turn_id`. Raises Invalid."""
    match = _PATH.fullmatch(text)
    ref = localize_ref(_read_path(match, turn_id) if match else parse_ref(text), conversation_id)
    owner = owner_of(ref)
    if owner is None:
        return Named(ref)
    return Named(localize_ref(ref, owner), ConversationId(owner))


def _read_path(match: re.Match[str], turn_id: TurnId) -> FileName:
    turn, rest, owner = match["turn"] or turn_id, match["rest"], match["conversation"]
    match match["folder"]:
        case "files":
            return refs.FileRef(turn, rest, conversation=owner)
        case "outputs":
            return refs.OutputRef(turn, rest, conversation=owner)
        case "attachments":
            return refs.AttachmentRef(turn, rest, conversation=owner)
        case "logs":
            return refs.LogRef(turn, rest, conversation=owner)
        case _:
            return refs.ExternalAttachmentRef(turn, match["kind"], match["message"], rest, conversation=owner)

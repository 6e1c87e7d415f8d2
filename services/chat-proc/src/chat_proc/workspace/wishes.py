"""What a `fi:` ref given to pull or checkout asks for: one file, or a folder of a turn's `files/`. Pure."""

from dataclasses import dataclass, replace

from everturn.errors import Invalid
from everturn.model import refs
from everturn.model.ids import ConversationId, TurnId

_FilesRef = refs.FileRef | refs.OutputRef | refs.AttachmentRef | refs.ExternalAttachmentRef | refs.LogRef


@dataclass(frozen=True, slots=True)
class Wish:
    """`exact` is the ref of a file and `folder` the beginning of the refs in a folder, both as their conversation
    spells them; one of them may be None. `conversation_id` is None for this conversation."""

    ref: str
    turn_id: TurnId
    exact: str | None
    folder: str | None
    conversation_id: ConversationId | None = None

    def spell(self, ref: str) -> str:
        """A ref of the wished conversation as this conversation has to write it."""
        if self.conversation_id is None:
            return ref
        return str(replace(_parse(ref), conversation=self.conversation_id))

    def spell_folder(self) -> str:
        """The ref of the wished folder as this conversation has to write it, with a slash at its end."""
        return self.spell(f"{self.folder}x").removesuffix("x")

    @property
    def tree(self) -> str:
        """The ref of all that the wished turn left in `files/`."""
        return whole_tree(self.turn_id, self.conversation_id)

    def place(self, path: str) -> str:
        """Where a file of the wished conversation lies for a program of this one."""
        return path if self.conversation_id is None else f"{self.conversation_id}/{path}"

    @property
    def folder_path(self) -> str:
        """Where the wished folder lies, with a slash at its end."""
        return self.place(f"{self.turn_id}/files/{(self.folder or '').partition('.files/')[2]}")


def read_wish(text: str, conversation_id: ConversationId) -> Wish:
    """Read what is asked for. Raises Invalid with a sentence for the model."""
    if not text.startswith("fi:"):
        raise Invalid(f"only fi: refs are taken{_guess(text)}")
    is_folder = text.endswith("/") or ("/" not in text and text.endswith(".files"))
    ref = _parse(f"{text.rstrip('/')}/x" if is_folder else text)
    owner = None if ref.conversation in (None, conversation_id) else ConversationId(str(ref.conversation))
    own = str(replace(ref, conversation=None))
    wish = Wish(text, TurnId(ref.turn), own, None, owner)
    if not isinstance(ref, refs.FileRef):
        if is_folder:
            raise Invalid("outputs and attachments are taken one by one, each with its own ref")
        return wish
    if is_folder:
        return replace(wish, exact=None, folder=own.removesuffix("x"))
    return replace(wish, folder=f"{own}/")


def root_wish(ref: str, conversation_id: ConversationId, *, is_folder: bool) -> Wish:
    """The wish that was granted when `ref` was pulled."""
    wish = read_wish(ref, conversation_id)
    return replace(wish, exact=None) if is_folder else replace(wish, folder=None)


def whole_tree(turn_id: str, conversation_id: str | None = None) -> str:
    """The ref of all files that a turn left. Raises Invalid when `turn_id` is none."""
    return refs.file_ref(turn_id, "x", conversation=conversation_id).removesuffix("x")


def place_wish(turn_id: str, conversation_id: str | None, here: str | None) -> Wish:
    """All files of a turn, attachments and outputs too. Raises Invalid when one of the ids is none."""
    owner = None if conversation_id in (None, here) else ConversationId(str(conversation_id))
    whole_tree(turn_id, owner)
    folder = all_files_of(turn_id)
    return Wish(folder, TurnId(turn_id), None, folder, owner)


def all_files_of(turn_id: str) -> str:
    """The beginning of the refs of all files of a turn, attachments and outputs too."""
    return whole_tree(turn_id).removesuffix("files/")


def _parse(text: str) -> _FilesRef:
    ref = refs.parse_ref(text)
    if not isinstance(ref, _FilesRef):
        raise Invalid("it names no file")
    return ref


def _guess(path: str) -> str:
    """The ref behind a path such as `turn_x/files/a.py`, as a hint."""
    turn_id, _, rest = path.partition("/")
    try:
        guessed = whole_tree(turn_id).removesuffix("files/") + rest.replace("attachments/", "user.attachments/", 1)
        _parse(guessed)
    except Invalid:
        return ""
    return f"; did you mean {guessed}?"

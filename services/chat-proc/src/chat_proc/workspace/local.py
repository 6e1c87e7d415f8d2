"""The local files of a turn: its own, its attachments, and those it pulled. Folded from its blocks.

The module also parses the paths and roots in calls, and defines the limits of a workspace.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from everturn.core import refs
from everturn.core.errors import Invalid
from everturn.core.ids import ConversationId, TurnId
from everturn.core.refs import check_path
from everturn.execution.messages import RunLimits
from everturn.files.model import Artifact, ArtifactKind
from everturn.skills.model import SCHEME, SKILLS_FOLDER, SkillFile
from everturn.timeline.blocks import (
    AttachmentBody,
    Block,
    CheckoutBody,
    DurableStepBody,
    EventBody,
    SignalBody,
    ToolResultBody,
    TurnHeaderBody,
)

PULL_TOOL = "react.pull"
_WRITABLE = (ArtifactKind.FILE, ArtifactKind.OUTPUT)

MIB = 1024 * 1024

MAX_WRITTEN_BYTES = 2 * MIB
"""Limit of a text that is written or patched: far above the length of one model reply."""
MAX_FILE_BYTES = RunLimits().file_bytes
"""Limit of one produced file: the same as for a program in the sandbox."""
MAX_DELTA_BYTES = 250 * MIB
"""Total of all files that one turn writes."""
MAX_WORKSPACE_FILES = 500
"""Files in `files/` of one turn. A checkout names each of them in its block."""
MAX_PULL_FILES = 500
MAX_PULL_BYTES = 256 * MIB
"""Total of all that one turn pulls: the size of the sandbox's work folder."""
MAX_PATHS = 50
"""Paths in one call of pull or checkout."""

_FilesRef = refs.FileRef | refs.OutputRef | refs.AttachmentRef | refs.ExternalAttachmentRef | refs.LogRef

MAX_WALKED = 2_000
"""Maximum files per search."""
_FOLDERS = ("files", "outputs", "attachments", "external", "logs")
_PLACE = re.compile(r"(?:conv_[A-Za-z0-9_-]{1,75}/)?(turn_[A-Za-z0-9_-]{1,75})(?:/|$)")
_REF = re.compile(r"fi:((?:conv_[A-Za-z0-9_-]{1,75}\.)?)(turn_[A-Za-z0-9_-]{1,75})(?:\.|$)")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file that programs and searches of this turn see. `path` is under a program's WORKDIR. A file of a skill is in
    memory, every other one in the object store.

    `ref` is its address for tools. `checked_out_from` is the ref from which it was checked out; `changed` means that it
    was written since. Only `own` files can be changed.
    """

    path: str
    ref: str
    artifact: Artifact | SkillFile
    origin: Literal["own", "attached", "pulled"]
    checked_out_from: str | None = None
    changed: bool = False

    @property
    def stored(self) -> Artifact:
        """The artifact of a file that is in the object store, as all of a turn's own files are."""
        if isinstance(self.artifact, SkillFile):
            raise TypeError("A file of a skill is not in the object store.")
        return self.artifact


class PulledRoot(BaseModel):
    """A file or folder that was pulled: an item of a pull's result. `size` in bytes, of all its files."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ref: str
    path: str
    size: int
    file_count: int | None = None

    @property
    def is_folder(self) -> bool:
        return self.file_count is not None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A turn's files by path, and the roots that it pulled. `written_bytes` counts every written version."""

    turn_id: TurnId
    files: Mapping[str, LocalFile] = field(default_factory=dict[str, LocalFile])
    pulled: tuple[PulledRoot, ...] = ()
    written_bytes: int = 0

    @property
    def own(self) -> tuple[LocalFile, ...]:
        """The files that the turn may change, in order of arrival."""
        return tuple(file for file in self.files.values() if file.origin == "own")

    @property
    def pulled_files(self) -> int:
        return sum(root.file_count or 1 for root in self.pulled)

    @property
    def pulled_bytes(self) -> int:
        return sum(root.size for root in self.pulled)

    def with_written(self, file: LocalFile) -> "Workspace":
        """The same with one more written file of the turn."""
        written = self.written_bytes + file.artifact.size
        return replace(self, files=dict(self.files) | {file.path: file}, written_bytes=written)

    def plus(self, files: Iterable[LocalFile]) -> "Workspace":
        """The same with more files; present ones are not replaced."""
        return replace(self, files={file.path: file for file in files} | dict(self.files))


def fold_workspace(blocks: Sequence[Block], turn_id: TurnId) -> Workspace:
    """The workspace after these blocks; blocks of other turns are ignored."""
    fold = WorkspaceFold(turn_id)
    fold.extend(blocks)
    return fold.workspace


def own_file(artifact: Artifact, *, checked_out_from: str | None = None, changed: bool = False) -> LocalFile:
    """A file of this turn, or one of its attachments."""
    origin = "own" if artifact.kind in _WRITABLE else "attached"
    return LocalFile(artifact.path, artifact.ref, artifact, origin, checked_out_from, changed)


class WorkspaceFold:
    """Folds one block after another into the workspace of a turn; blocks of other turns are ignored."""

    def __init__(self, turn_id: TurnId) -> None:
        self.has_header = False
        """Whether the turn's header is among the blocks."""
        self._turn_id = turn_id
        self._files: dict[str, LocalFile] = {}
        self._pulled: dict[str, PulledRoot] = {}
        self._written_bytes = 0

    def extend(self, blocks: Iterable[Block]) -> None:
        """Take the next blocks."""
        for block in blocks:
            if block.turn_id == self._turn_id:
                self._take(block)

    @property
    def workspace(self) -> Workspace:
        """The workspace after the blocks so far."""
        return Workspace(self._turn_id, dict(self._files), tuple(self._pulled.values()), self._written_bytes)

    def _take(self, block: Block) -> None:
        match block.body:
            case TurnHeaderBody():
                self.has_header = True
            case AttachmentBody(artifact=artifact):
                self._put(own_file(artifact))
            case SignalBody(attachments=attachments) | EventBody(attachments=attachments):
                for artifact in attachments:
                    self._put(own_file(artifact))
            case CheckoutBody() as checkout:
                self._check_out(checkout)
            case ToolResultBody() as result:
                self._take_result(block.turn_id, result)
            case DurableStepBody(artifacts=artifacts):
                self._take_written(block.turn_id, artifacts)
            case _:
                """Other blocks bring no files."""

    def _take_result(self, turn_id: TurnId, result: ToolResultBody) -> None:
        self._take_written(turn_id, result.artifacts)
        if result.tool_id == PULL_TOOL and result.status == "ok":
            self._pulled |= {root.ref: root for root in read_pulled(result.data or {})}

    def _take_written(self, turn_id: TurnId, artifacts: Iterable[Artifact]) -> None:
        for artifact in artifacts:
            if artifact.turn_id == turn_id and artifact.kind in _WRITABLE:
                before = self._files.get(artifact.path)
                source = before.checked_out_from if before else None
                self._put(own_file(artifact, checked_out_from=source, changed=source is not None))
                self._written_bytes += artifact.size

    def _check_out(self, checkout: CheckoutBody) -> None:
        if checkout.mode == "replace":
            self._files = {path: file for path, file in self._files.items() if not is_workspace_file(file)}
        for artifact in checkout.removed:
            self._files.pop(artifact.path, None)
        for artifact, source in zip(checkout.artifacts, checkout.sources, strict=True):
            self._put(own_file(artifact, checked_out_from=source))

    def _put(self, file: LocalFile) -> None:
        self._files.pop(file.path, None)
        self._files[file.path] = file


def is_workspace_file(file: LocalFile) -> bool:
    """Whether the file is in `files/` of this turn."""
    return file.origin == "own" and file.stored.kind is ArtifactKind.FILE


def read_pulled(data: Mapping[str, object]) -> tuple[PulledRoot, ...]:
    """The roots in a pull's result; none if the data is of another kind."""
    try:
        return _Pulling.model_validate(data).pulled
    except ValidationError:
        return ()


class _Pulling(BaseModel):
    """The part of a pull's result that is read here."""

    pulled: tuple[PulledRoot, ...] = ()


def describe_limits() -> str:
    """One line for the model. ANNOUNCE shows these numbers, and the tools enforce them."""
    return (
        f"one file {MAX_FILE_BYTES // MIB} MiB, text written in one call {MAX_WRITTEN_BYTES // MIB} MiB, "
        f"all files written in a turn {MAX_DELTA_BYTES // MIB} MiB, files/ {MAX_WORKSPACE_FILES} files, "
        f"pulled {MAX_PULL_FILES} files and {MAX_PULL_BYTES // MIB} MiB"
    )


@dataclass(frozen=True, slots=True)
class FileTarget:
    """`exact` is the ref of a file and `folder` the prefix of the refs in a folder, both as spelled in their
    conversation; one of them may be None. `conversation_id` is None for this conversation."""

    ref: str
    turn_id: TurnId
    exact: str | None
    folder: str | None
    conversation_id: ConversationId | None = None

    def spell(self, ref: str) -> str:
        """A ref of the target conversation, as spelled in this conversation."""
        if self.conversation_id is None:
            return ref
        return str(replace(_parse(ref), conversation=self.conversation_id))

    def spell_folder(self) -> str:
        """The ref of the target folder, as spelled in this conversation, with a slash at its end."""
        return self.spell(f"{self.folder}x").removesuffix("x")

    @property
    def tree(self) -> str:
        """The ref of all files that the target turn left in `files/`."""
        return whole_tree(self.turn_id, self.conversation_id)

    def place(self, path: str) -> str:
        """The path of a file of the target conversation for a program of this one."""
        return path if self.conversation_id is None else f"{self.conversation_id}/{path}"

    @property
    def folder_path(self) -> str:
        """The path of the target folder, with a slash at its end."""
        return self.place(f"{self.turn_id}/files/{(self.folder or '').partition('.files/')[2]}")


def parse_target(text: str, conversation_id: ConversationId) -> FileTarget:
    """Parse the requested ref. Raises Invalid with a sentence for the model."""
    if not text.startswith("fi:"):
        raise Invalid(f"only fi: refs are accepted{_guess(text)}")
    is_folder = text.endswith("/") or ("/" not in text and text.endswith(".files"))
    ref = _parse(f"{text.rstrip('/')}/x" if is_folder else text)
    owner = None if ref.conversation in (None, conversation_id) else ConversationId(str(ref.conversation))
    own = str(replace(ref, conversation=None))
    target = FileTarget(text, TurnId(ref.turn), own, None, owner)
    if not isinstance(ref, refs.FileRef):
        if is_folder:
            raise Invalid("outputs and attachments must be named one by one, each by its own ref")
        return target
    if is_folder:
        return replace(target, exact=None, folder=own.removesuffix("x"))
    return replace(target, folder=f"{own}/")


def root_target(ref: str, conversation_id: ConversationId, *, is_folder: bool) -> FileTarget:
    """The target that was granted when `ref` was pulled."""
    target = parse_target(ref, conversation_id)
    return replace(target, exact=None) if is_folder else replace(target, folder=None)


def whole_tree(turn_id: str, conversation_id: str | None = None) -> str:
    """The ref of all files that a turn left. Raises Invalid if `turn_id` is not a turn id."""
    return refs.file_ref(turn_id, "x", conversation=conversation_id).removesuffix("x")


def turn_target(turn_id: str, conversation_id: str | None, here: str | None) -> FileTarget:
    """All files of a turn, including attachments and outputs. Raises Invalid if one of the ids is malformed."""
    owner = None if conversation_id in (None, here) else ConversationId(str(conversation_id))
    whole_tree(turn_id, owner)
    folder = all_files_of(turn_id)
    return FileTarget(folder, TurnId(turn_id), None, folder, owner)


def all_files_of(turn_id: str) -> str:
    """The prefix of the refs of all files of a turn, including attachments and outputs."""
    return whole_tree(turn_id).removesuffix("files/")


def _parse(text: str) -> _FilesRef:
    ref = refs.parse_ref(text)
    if not isinstance(ref, _FilesRef):
        raise Invalid("it does not name a file")
    return ref


def _guess(path: str) -> str:
    """The ref of a path such as `turn_x/files/a.py`, as a hint."""
    turn_id, _, rest = path.partition("/")
    try:
        guessed = whole_tree(turn_id).removesuffix("files/") + rest.replace("attachments/", "user.attachments/", 1)
        _parse(guessed)
    except Invalid:
        return ""
    return f"; did you mean {guessed}?"


def find_clash(paths: Iterable[str]) -> str | None:
    """The first path that would have to be both, if any."""
    names = set(paths)
    for path in sorted(names):
        parts = path.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in names:
                return "/".join(parts[:end])
    return None


@dataclass(frozen=True, slots=True)
class Selection:
    """Files by path, and notes on how they were chosen."""

    files: tuple[LocalFile, ...]
    notices: tuple[str, ...] = ()


def select_files(workspace: Workspace, root: str, conversation_id: ConversationId) -> Selection:
    """The local files at or under `root`; all of them if it is empty. Raises Invalid if it can't be a root."""
    wanted = root.strip().removeprefix("./").rstrip("/").removesuffix("/.")
    if wanted in ("", "."):
        return _bound(list(workspace.files.values()), [])
    if wanted.startswith(SCHEME):
        wanted = f"{SKILLS_FOLDER}/{wanted.removeprefix(SCHEME)}"
    if wanted.partition("/")[0] == SKILLS_FOLDER:
        return _select_skills(workspace, root, wanted)
    if wanted.startswith("fi:"):
        scheme, _, rest = wanted.partition(":")
        wanted = f"{scheme}:{rest.removeprefix(f'{conversation_id}.')}"
        match = _REF.match(wanted)
        names = {file.path: file.ref for file in workspace.files.values()}
    else:
        wanted = _read_path(wanted, workspace, conversation_id)
        match = _PLACE.match(wanted)
        names = {path: _folded(path, wanted) for path in workspace.files}
    if match is None:
        raise Invalid(
            f"{root!a} is not a root: roots begin with files/, outputs/, attachments/, a turn's folder, or fi:."
        )
    found = [workspace.files[path] for path, name in names.items() if name == wanted or _is_below(name, wanted)]
    return _bound(found, [] if found else [_describe_missing_root(root, match, workspace)])


def _select_skills(workspace: Workspace, root: str, wanted: str) -> Selection:
    found = [file for path, file in workspace.files.items() if path == wanted or path.startswith(f"{wanted}/")]
    hint = f"There are no local files under {root}: they were not pulled. Pull a skill first with react.pull."
    return _bound(found, [] if found else [hint])


def _read_path(path: str, workspace: Workspace, conversation_id: ConversationId) -> str:
    check_path(path)
    path = path.removeprefix(f"{conversation_id}/")
    return f"{workspace.turn_id}/{path}" if path.partition("/")[0] in _FOLDERS else path


def _folded(path: str, wanted: str) -> str:
    """Attachments of signals count as attachments of their turn."""
    turn, _, rest = path.partition("/")
    if rest.startswith("external/") and wanted == f"{turn}/attachments":
        return f"{wanted}/{rest}"
    return path


def _is_below(name: str, folder: str) -> bool:
    if not name.startswith(folder):
        return False
    return name[len(folder) : len(folder) + 1] in ("/", ".") if _is_turn(folder) else name[len(folder)] == "/"


def _is_turn(folder: str) -> bool:
    """Whether the folder is a whole turn, whose refs continue with a dot."""
    return folder.startswith("fi:") and folder.rpartition(".")[2].startswith(("turn_", "fi:turn_"))


def _describe_missing_root(root: str, match: re.Match[str], workspace: Workspace) -> str:
    is_ref = root.startswith("fi:")
    turn_id = match[2] if is_ref else match[1]
    if turn_id == workspace.turn_id and "conv_" not in root:
        return f"There are no local files under {root}."
    owner = re.search(r"conv_[A-Za-z0-9_-]+", root)
    tree = whole_tree(turn_id, owner[0] if owner else None)
    hint = f'Pull it first with react.pull {{"paths": ["{tree}"]}}.'
    return f"There are no local files under {root}: it was not pulled. {hint}"


def _bound(found: Sequence[LocalFile], notices: list[str]) -> Selection:
    ordered = sorted(found, key=lambda file: file.path)
    if len(ordered) > MAX_WALKED:
        notices = [*notices, f"{len(ordered)} files match; only the first {MAX_WALKED} by path were searched."]
    return Selection(tuple(ordered[:MAX_WALKED]), tuple(notices))

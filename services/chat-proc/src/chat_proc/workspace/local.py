"""What a turn has locally: its own files, what came with its messages, and what it pulled. Folded from its blocks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from everturn.model.artifacts import Artifact, ArtifactKind
from everturn.model.block_bodies import AttachmentBody, CheckoutBody, EventBody, SignalBody, ToolResultBody
from everturn.model.blocks import Block
from everturn.model.ids import TurnId

PULL_TOOL = "react.pull"
_WRITABLE = (ArtifactKind.FILE, ArtifactKind.OUTPUT)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file that programs and searches of this turn see. `path` is below a program's WORKDIR.

    `ref` is the address that tools take. `taken_from` is the ref it was checked out from; `changed` says that it was
    written since. Only `own` files can be changed.
    """

    path: str
    ref: str
    artifact: Artifact
    origin: Literal["own", "attached", "pulled"]
    taken_from: str | None = None
    changed: bool = False


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
    """A turn's files by path, and the roots of what it pulled. `written_bytes` counts every version it wrote."""

    turn_id: TurnId
    files: Mapping[str, LocalFile] = field(default_factory=dict[str, LocalFile])
    pulled: tuple[PulledRoot, ...] = ()
    written_bytes: int = 0

    @property
    def own(self) -> tuple[LocalFile, ...]:
        """What the turn may change, in the order it came."""
        return tuple(file for file in self.files.values() if file.origin == "own")

    @property
    def pulled_files(self) -> int:
        return sum(root.file_count or 1 for root in self.pulled)

    @property
    def pulled_bytes(self) -> int:
        return sum(root.size for root in self.pulled)

    def with_written(self, file: LocalFile) -> "Workspace":
        """The same after one more file of the turn was written."""
        written = self.written_bytes + file.artifact.size
        return replace(self, files=dict(self.files) | {file.path: file}, written_bytes=written)

    def plus(self, files: Iterable[LocalFile]) -> "Workspace":
        """The same with more files; what is there already stays."""
        return replace(self, files={file.path: file for file in files} | dict(self.files))


def fold_workspace(blocks: Sequence[Block], turn_id: TurnId) -> Workspace:
    """The workspace after these blocks; blocks of other turns mean nothing to it."""
    folding = _Folding()
    for block in blocks:
        if block.turn_id == turn_id:
            folding.fold(block)
    return Workspace(turn_id, folding.files, tuple(folding.pulled.values()), folding.written_bytes)


def own_file(artifact: Artifact, *, taken_from: str | None = None, changed: bool = False) -> LocalFile:
    """A file of this turn, or one that came with its messages."""
    origin = "own" if artifact.kind in _WRITABLE else "attached"
    return LocalFile(artifact.path, artifact.ref, artifact, origin, taken_from, changed)


class _Folding:
    """The state of one fold."""

    def __init__(self) -> None:
        self.files: dict[str, LocalFile] = {}
        self.pulled: dict[str, PulledRoot] = {}
        self.written_bytes = 0

    def fold(self, block: Block) -> None:
        match block.body:
            case AttachmentBody(artifact=artifact):
                self._put(own_file(artifact))
            case SignalBody(attachments=attachments) | EventBody(attachments=attachments):
                for artifact in attachments:
                    self._put(own_file(artifact))
            case CheckoutBody() as checkout:
                self._check_out(checkout)
            case ToolResultBody() as result:
                self._take_result(block.turn_id, result)
            case _:
                """Other blocks bring no files."""

    def _take_result(self, turn_id: TurnId, result: ToolResultBody) -> None:
        for artifact in result.artifacts:
            if artifact.turn_id == turn_id and artifact.kind in _WRITABLE:
                before = self.files.get(artifact.path)
                source = before.taken_from if before else None
                self._put(own_file(artifact, taken_from=source, changed=source is not None))
                self.written_bytes += artifact.size
        if result.tool_id == PULL_TOOL and result.status == "ok":
            self.pulled |= {root.ref: root for root in read_pulled(result.data or {})}

    def _check_out(self, checkout: CheckoutBody) -> None:
        if checkout.mode == "replace":
            self.files = {path: file for path, file in self.files.items() if not is_workspace_file(file)}
        for artifact, source in zip(checkout.artifacts, checkout.sources, strict=True):
            self._put(own_file(artifact, taken_from=source))

    def _put(self, file: LocalFile) -> None:
        self.files.pop(file.path, None)
        self.files[file.path] = file


def is_workspace_file(file: LocalFile) -> bool:
    """Whether the file lies in `files/` of this turn."""
    return file.origin == "own" and file.artifact.kind is ArtifactKind.FILE


def read_pulled(data: Mapping[str, object]) -> tuple[PulledRoot, ...]:
    """The roots that a pull's result tells of; none when the data are of another kind."""
    try:
        return _Pulling.model_validate(data).pulled
    except ValidationError:
        return ()


class _Pulling(BaseModel):
    """The part of a pull's result that is read here."""

    pulled: tuple[PulledRoot, ...] = ()

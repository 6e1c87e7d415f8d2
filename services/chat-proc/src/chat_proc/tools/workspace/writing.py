"""What writing and patching have in common: whether a file may be stored, and who sees it."""

from typing import Literal

from chat_proc.tools.stored_files import Destination
from chat_proc.workspace.clashes import find_clash
from chat_proc.workspace.limits import MAX_DELTA_BYTES, MAX_TEXT_BYTES, MAX_WORKSPACE_FILES, MIB
from chat_proc.workspace.local import Workspace, is_workspace_file
from everturn.errors import Invalid
from everturn.model.artifacts import ArtifactKind

Channel = Literal["canvas", "timeline_text", "internal"]
Kind = Literal["display", "file"]


def check_room(workspace: Workspace, destination: Destination, size: int, *, max_bytes: int = MAX_TEXT_BYTES) -> None:
    """Raise Invalid, with a sentence for the model, when a file of `size` bytes can't be stored there."""
    if size > max_bytes:
        raise Invalid(f"The content has {size} bytes; {max_bytes} is the most. Write less.")
    if workspace.written_bytes + size > MAX_DELTA_BYTES:
        raise Invalid(f"The files written in this turn would exceed {MAX_DELTA_BYTES // MIB} MB.")
    path = f"{workspace.turn_id}/{destination.folder_path}"
    if path in workspace.files:
        return
    clash = find_clash([path, *(file.path for file in workspace.own)])
    if clash:
        raise Invalid(f"{clash} would be a file and a folder at once; choose another path.")
    present = sum(is_workspace_file(file) for file in workspace.own)
    if destination.kind is ArtifactKind.FILE and present >= MAX_WORKSPACE_FILES:
        raise Invalid(f"files/ of this turn has {present} files already, which is the most.")


def choose_visibility(channel: Channel, kind: Kind) -> Literal["internal", "external"]:
    """Files are offered to the person; what goes to the internal channel never is."""
    return "external" if kind == "file" and channel != "internal" else "internal"

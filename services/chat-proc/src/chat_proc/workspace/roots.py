"""Which local files a search is about: reads the ways in which a model names a file or folder. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from chat_proc.workspace.local import LocalFile, Workspace
from chat_proc.workspace.wishes import whole_tree
from everturn.errors import Invalid
from everturn.model.ids import ConversationId
from everturn.model.refs import check_path

MAX_WALKED = 2_000
"""Files that one search looks at."""
_FOLDERS = ("files", "outputs", "attachments", "external", "logs")
_PLACE = re.compile(r"(?:conv_[A-Za-z0-9_-]{1,75}/)?(turn_[A-Za-z0-9_-]{1,75})(?:/|$)")
_REF = re.compile(r"fi:((?:conv_[A-Za-z0-9_-]{1,75}\.)?)(turn_[A-Za-z0-9_-]{1,75})(?:\.|$)")


@dataclass(frozen=True, slots=True)
class Selection:
    """Files by path, and what has to be said about how they were chosen."""

    files: tuple[LocalFile, ...]
    notices: tuple[str, ...] = ()


def select_files(workspace: Workspace, root: str, conversation_id: ConversationId) -> Selection:
    """The local files at or below `root`; all of them when it is empty. Raises Invalid when it can be no root."""
    wanted = root.strip().removeprefix("./").rstrip("/").removesuffix("/.")
    if wanted in ("", "."):
        return _bound(list(workspace.files.values()), [])
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
    return _bound(found, [] if found else [_tell_missing(root, match, workspace)])


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
    """Whether the folder is a whole turn, whose refs go on with a dot."""
    return folder.startswith("fi:") and folder.rpartition(".")[2].startswith(("turn_", "fi:turn_"))


def _tell_missing(root: str, match: re.Match[str], workspace: Workspace) -> str:
    is_ref = root.startswith("fi:")
    turn_id = match[2] if is_ref else match[1]
    if turn_id == workspace.turn_id and "conv_" not in root:
        return f"Nothing is local under {root}."
    owner = re.search(r"conv_[A-Za-z0-9_-]+", root)
    tree = whole_tree(turn_id, owner[0] if owner else None)
    return (
        f'Nothing is local under {root}: it was not pulled. Pull it first, such as react.pull {{"paths": ["{tree}"]}}.'
    )


def _bound(found: Sequence[LocalFile], notices: list[str]) -> Selection:
    ordered = sorted(found, key=lambda file: file.path)
    if len(ordered) > MAX_WALKED:
        notices = [*notices, f"{len(ordered)} files are there; the first {MAX_WALKED} by path were looked at."]
    return Selection(tuple(ordered[:MAX_WALKED]), tuple(notices))

"""The workspace in ANNOUNCE: where this turn writes, which files are local, which turns left files to continue with."""

from collections.abc import Sequence

from chat_proc.workspace.local import (
    MAX_DELTA_BYTES,
    MAX_PULL_BYTES,
    MAX_PULL_FILES,
    MAX_WORKSPACE_FILES,
    MIB,
    LocalFile,
    PulledRoot,
    Workspace,
    is_workspace_file,
    whole_tree,
)
from everturn.files.ports import WorkspaceTurn
from everturn.timeline.inert import escape_line

SHOWN_FILES = 30
SHOWN_ATTACHMENTS = 10
SHOWN_ROOTS = 10
SHOWN_TURNS = 5


def describe_workspace(workspace: Workspace, turns: Sequence[WorkspaceTurn] | None) -> tuple[str, ...]:
    """Lines in a fixed order, safe in a prompt. `turns` are the last ones with files, None if they can't be loaded."""
    own = workspace.own
    return (
        f"this turn writes to {workspace.turn_id}/files/ and {workspace.turn_id}/outputs/",
        *_own_lines(workspace, own),
        *_attached_lines([file for file in workspace.files.values() if file.origin == "attached"]),
        *_pulled_lines(workspace),
        *_turn_lines(workspace, turns),
    )


def _own_lines(workspace: Workspace, own: Sequence[LocalFile]) -> list[str]:
    if not own:
        return ["local: nothing written or checked out yet"]
    count = sum(is_workspace_file(file) for file in own)
    size = sum(file.artifact.size for file in own)
    head = (
        f"local, editable: {count} of {MAX_WORKSPACE_FILES} files in files/, {len(own) - count} in outputs/, "
        f"{size} bytes; written in this turn {workspace.written_bytes} of {MAX_DELTA_BYTES // MIB} MiB"
    )
    # The last written files are at the end of the list, and are what the model works on.
    shown = sorted(own, key=lambda file: file.checked_out_from is None or file.changed)[-SHOWN_FILES:]
    return [head, *map(_own_line, shown), *_more(len(own) - len(shown), "react.search_files lists them")]


def _own_line(file: LocalFile) -> str:
    origin = f", checked out from {escape_line(file.checked_out_from)}" if file.checked_out_from else ""
    changed = ", modified" if file.changed else ""
    return f"- {escape_line(file.ref)} ({file.artifact.mime}, {file.artifact.size} bytes){origin}{changed}"


def _attached_lines(attached: Sequence[LocalFile]) -> list[str]:
    if not attached:
        return []
    lines = [f"- {escape_line(file.ref)} ({file.artifact.size} bytes)" for file in attached[:SHOWN_ATTACHMENTS]]
    return ["local, attached by the user:", *lines, *_more(len(attached) - len(lines))]


def _pulled_lines(workspace: Workspace) -> list[str]:
    if not workspace.pulled:
        return []
    head = (
        f"local, pulled, read-only: {workspace.pulled_files} of {MAX_PULL_FILES} files, "
        f"{workspace.pulled_bytes} bytes of {MAX_PULL_BYTES // MIB} MiB"
    )
    shown = workspace.pulled[-SHOWN_ROOTS:]
    return [head, *map(_pulled_line, shown), *_more(len(workspace.pulled) - len(shown))]


def _pulled_line(root: PulledRoot) -> str:
    count = f"{root.file_count} files, " if root.is_folder else ""
    return f"- {escape_line(root.path)} ({count}{root.size} bytes)"


def _turn_lines(workspace: Workspace, turns: Sequence[WorkspaceTurn] | None) -> list[str]:
    if turns is None:
        return ["earlier turns: their files can't be listed now"]
    earlier = [turn for turn in turns if turn.turn_id != workspace.turn_id][:SHOWN_TURNS]
    if not earlier:
        return []
    head = "not local; the last turns with files/, newest first, for react.checkout or react.pull:"
    if all(turn.is_project for turn in earlier):
        head = (
            "not local; the whole project as it was after each of the last turns that changed it, newest first: "
            "react.checkout of the first one continues it, and react.read reads any of its files:"
        )
    return [
        head,
        *(f"- {whole_tree(turn.turn_id)} ({turn.file_count} files)" for turn in earlier),
    ]


def _more(count: int, how: str = "") -> list[str]:
    return [f"- and {count} more{f'; {how}' if how else ''}"] if count > 0 else []

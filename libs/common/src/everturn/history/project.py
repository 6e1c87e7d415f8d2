"""The files of a project while turns change them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from everturn.files.model import Artifact
from everturn.history.model import TurnChanges


class Project:
    """The files of a project by path below `files/`, while turns change them."""

    def __init__(self) -> None:
        self.files: dict[str, Artifact] = {}
        self._folders = Counter[str]()
        """How many files are below each folder."""

    def apply(self, turn: TurnChanges) -> None:
        """Change the files as this turn did. As in git, a file takes the place of a folder of its name, and back."""
        for change in turn.changes:
            self._remove(change.path)
            if change.artifact is not None:
                if self._folders[change.path]:
                    for below in [other for other in self.files if other.startswith(f"{change.path}/")]:
                        self._remove(below)
                for folder in _list_folders(change.path):
                    self._remove(folder)
                    self._folders[folder] += 1
                self.files[change.path] = change.artifact

    def _remove(self, path: str) -> None:
        if self.files.pop(path, None) is not None:
            self._folders.subtract(_list_folders(path))


def _list_folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def fold_project(turns: Sequence[TurnChanges], last: str | None = None) -> Mapping[str, Artifact]:
    """The files after the turn `last`, or after all of them, by path below `files/`."""
    project = Project()
    for turn in turns if last is None else turns[: count_until(turns, last)]:
        project.apply(turn)
    return project.files


def count_until(turns: Sequence[TurnChanges], last: str) -> int:
    """How many of these turns there are up to the turn `last`. They are in the order in which they were accepted. A
    turn that changed nothing is not among them: its id says where it would be, as exactly as the clocks of servers
    agree."""
    for place, turn in enumerate(turns):
        if turn.turn_id == last:
            return place + 1
    return max((place + 1 for place, turn in enumerate(turns) if turn.turn_id < last), default=0)


def settle_changes(turns: Sequence[TurnChanges]) -> tuple[TurnChanges, ...]:
    """The turns without deletions of what is no file then: git would delete a folder of that name. A turn that changes
    nothing else is left out."""
    project, settled = Project(), list[TurnChanges]()
    for turn in turns:
        real = tuple(each for each in turn.changes if each.artifact is not None or each.path in project.files)
        if real:
            settled.append(turn if len(real) == len(turn.changes) else replace(turn, changes=real))
            project.apply(settled[-1])
    return tuple(settled)

"""Assigns tests to processes: every test file belongs to the group with the nearest folder above it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from everturn.core.errors import EverturnError

TESTS = "tests"
CHECKED = "tests/architecture/"
"""Runs with `make check`, not here."""


class TestsWithoutGroup(EverturnError):
    """Some tests are in no group, so nothing would run them."""

    __test__ = False  # its name looks like a class of tests


@dataclass(frozen=True, slots=True)
class Group:
    """The tests under `folder` (from the top of the repository) that belong to no group of a deeper folder.

    `alone`: nothing runs at the same time, because it measures, or has limits that a busy machine would exceed.
    `on_request`: runs only with `--all`, as in CI, because it takes minutes and needs programs that few machines have.
    """

    folder: str
    alone: bool = False
    on_request: bool = False

    @property
    def name(self) -> str:
        return self.folder.removeprefix(f"{TESTS}/")


GROUPS = (
    Group("tests/chaos"),
    Group("tests/browser", on_request=True),
    Group("tests/sandbox"),
    Group("tests/integration"),
    Group("tests/integration/ingress"),
    Group("tests/web_client"),
    Group("tests/contract"),
    Group("tests/e2e"),
    Group("tests/unit/chat_proc"),
    Group("tests/unit"),
    Group("tests/golden"),
    Group("tests/sandbox/chat_proc", alone=True),
    Group("tests/compose", alone=True, on_request=True),
)
"""In the order of their start: long ones first, so that no lane has a long one left at the end.

The battery runs alone, because an attempt that a busy machine kept from ending in time doesn't count as denied. Compose
runs alone, because it starts a second platform in the container engine whose containers other tests count.
"""


def check_every_test_has_a_group(files: Iterable[str], groups: Sequence[Group] = GROUPS) -> None:
    """`files` are paths from the top of the repository. Raises TestsWithoutGroup."""
    lost = [file for file in files if try_find_group(file, groups) is None]
    if lost:
        names = ", ".join(sorted(lost))
        raise TestsWithoutGroup(f"{names}. Name a folder above in tests/support/suite/groups.py:GROUPS.")


def try_find_group(file: str, groups: Sequence[Group] = GROUPS) -> Group | None:
    """The group that runs this file: the one with the nearest folder above it."""
    above = {str(folder) for folder in PurePosixPath(file).parents}
    around = [group for group in groups if group.folder in above]
    return max(around, key=lambda group: len(group.folder), default=None)


def build_selection(group: Group, groups: Sequence[Group] = GROUPS) -> list[str]:
    """The arguments with which pytest collects this group's files and no others."""
    inside = [other.folder for other in groups if other.folder.startswith(f"{group.folder}/")]
    return [group.folder, *(f"--ignore={folder}" for folder in inside)]


def load_test_files(root: Path) -> list[str]:
    """All files with tests to run, as paths from `root`."""
    files = (file.relative_to(root).as_posix() for file in (root / TESTS).rglob("test_*.py"))
    return sorted(file for file in files if not file.startswith(CHECKED))

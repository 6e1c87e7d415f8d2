"""What the rules look at: our source modules, parsed, and the other files of the repository."""

import ast
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SHIPPED_SKILLS = ROOT / "services/chat-proc/src/chat_proc/skills/public"
"""Texts for models, and scripts that run in the sandbox with its libraries: for the worker they are data."""
DRIVER = ROOT / "services/chat-proc/src/chat_proc/tools/coding/driver"
"""A program of the sandbox, which has its libraries and environment."""
SOURCE_FOLDERS = ("libs/*/src/*", "services/*/src/*", "clients/python/src/*", "deploy/local/src/*")


@dataclass(frozen=True)
class Module:
    """One file, which is parsed and walked through once. `path` is relative to the repository, with slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its tree."""
        return tuple(ast.walk(self.tree))

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2].removesuffix(".py")

    @property
    def package_path(self) -> tuple[str, ...]:
        """The parts from the package on: `("everturn", "model", "ids.py")`."""
        _, found, inside = self.path.partition("/src/")
        return tuple(inside.split("/")) if found else ()


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach, at a place that an editor can open."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.message}"


@cache
def load_modules() -> tuple[Module, ...]:
    """All modules of all packages."""
    packages = [folder for pattern in SOURCE_FOLDERS for folder in sorted(ROOT.glob(pattern)) if folder.is_dir()]
    files = (file for package in packages for file in sorted(package.rglob("*.py")))
    return tuple(_load_module(file) for file in files if not {SHIPPED_SKILLS, DRIVER} & {*file.parents})


@cache
def load_test_modules() -> tuple[Module, ...]:
    return tuple(_load_module(file) for file in sorted((ROOT / "tests").rglob("*.py")))


def _load_module(file: Path) -> Module:
    return Module(file.relative_to(ROOT).as_posix(), file.read_text())


def load_repository_texts() -> Iterator[tuple[str, str]]:
    """Path and text of every file that is or would be committed; files that are no text are left out."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for path in sorted(set(listing.stdout.splitlines())):
        try:
            yield path, (ROOT / path).read_text()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue


def render(violations: Sequence[Violation]) -> str:
    return "\n" + "\n".join(str(violation) for violation in violations)

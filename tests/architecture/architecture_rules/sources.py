"""What the rules look at: our source modules, parsed, and the other files of the repository."""

import ast
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE_FOLDERS = ("libs/*/src/*", "services/*/src/*", "clients/python/src/*", "deploy/local/src/*")


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file. `path` is relative to the repository, with slashes."""

    path: str
    text: str
    tree: ast.Module

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


def build_module(path: str, text: str) -> Module:
    return Module(path=path, text=text, tree=ast.parse(text))


@cache
def load_modules() -> tuple[Module, ...]:
    """All modules of all packages, parsed once."""
    packages = [folder for pattern in SOURCE_FOLDERS for folder in sorted(ROOT.glob(pattern)) if folder.is_dir()]
    return tuple(_load_module(file) for package in packages for file in sorted(package.rglob("*.py")))


@cache
def load_test_modules() -> tuple[Module, ...]:
    return tuple(_load_module(file) for file in sorted((ROOT / "tests").rglob("*.py")))


def _load_module(file: Path) -> Module:
    return build_module(file.relative_to(ROOT).as_posix(), file.read_text())


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

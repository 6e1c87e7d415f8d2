"""Records which steps were done with which sources, so that they run again only after changes."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = "node_modules"
FILE: Final = ".everturn.json"
LOCKED: Final = ("package.json", "package-lock.json", ".npmrc")
MADE: Final = frozenset({"node_modules", "dist"})


@dataclass(frozen=True, slots=True)
class Stamps:
    """Digests by step, stored next to the installed packages and deleted together with them."""

    web: Path

    def is_done(self, what: str, digest: str) -> bool:
        return self._load().get(what) == digest

    def save(self, what: str, digest: str) -> None:
        # npm removes the folder when it has installed nothing into it.
        (self.web / FOLDER).mkdir(exist_ok=True)
        (self.web / FOLDER / FILE).write_text(json.dumps({**self._load(), what: digest}))

    def forget(self, what: str) -> None:
        kept = {name: digest for name, digest in self._load().items() if name != what}
        with suppress(FileNotFoundError):  # no packages are installed, so nothing was done
            (self.web / FOLDER / FILE).write_text(json.dumps(kept))

    def _load(self) -> Mapping[str, str]:
        try:
            return dict(json.loads((self.web / FOLDER / FILE).read_text()))
        except (OSError, ValueError, TypeError):
            return {}


def build_packages_digest(web: Path) -> str:
    """The digest of the files that determine the packages."""
    return _build_digest(web, (web / name for name in LOCKED))


def build_sources_digest(web: Path) -> str:
    """The digest of all files that are not generated."""
    files = (path for path in web.rglob("*") if path.relative_to(web).parts[0] not in MADE and path.is_file())
    return _build_digest(web, sorted(files))


def _build_digest(web: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).digest()
        digest.update(f"{file.relative_to(web).as_posix()}\0".encode() + content)
    return digest.hexdigest()

"""Git repositories in folders, to fetch from."""

import os
import subprocess
from pathlib import Path

_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": f"{what}@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


class GitSource:
    """A repository to fetch from; a new one, or with `exists` the one in the folder."""

    def __init__(self, folder: Path, *, exists: bool = False) -> None:
        self.folder = folder
        if not exists:
            folder.mkdir()
            self.git("init", "--quiet", "--initial-branch=main")

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def git(self, *command: str, data: bytes | None = None) -> str:
        done = subprocess.run(
            ["git", *command], cwd=self.folder, env=_ENVIRONMENT, input=data, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def write(self, path: str, content: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self) -> str:
        self.git("add", "--all")
        return self.commit_index()

    def commit_index(self) -> str:
        self.git("commit", "--quiet", "--allow-empty", "--message=change")
        return self.git("rev-parse", "HEAD")

    def add_to_index(self, mode: str, path: bytes, content: bytes) -> None:
        """Add an entry that no work tree can have."""
        digest = self.git("hash-object", "-w", "--stdin", data=content)
        entry = f"{mode} {digest}\t".encode() + path + b"\0"
        self.git("update-index", "-z", "--index-info", data=entry)

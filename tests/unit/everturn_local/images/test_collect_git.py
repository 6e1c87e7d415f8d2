"""What the worker's image has of git."""

import re
import subprocess
import sys
from pathlib import Path

from everturn_local.images.standins import COLLECT_GIT

MAX_BYTES = 40 * 1024 * 1024


def test_git_is_collected_with_its_libraries_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-I", str(COLLECT_GIT), str(tmp_path)], check=True)

    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    (core,) = {path.parent for path in files if path.name == "git-remote-http"}
    others = [path.name for path in files if not re.search(r"\.so\.\d|copyright$", path.name)]
    assert sorted(others) == ["git", "git-remote-http"]
    assert not [path.name for path in files if path.name.startswith(("libc.so", "libpthread"))]
    assert {path.name: str(path.readlink()) for path in tmp_path.rglob("git*") if path.is_symlink()} == {
        "git-upload-pack": "git",
        "git-remote-https": "git-remote-http",
    }
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    environment = {"GIT_EXEC_PATH": str(core), "PATH": str(tmp_path / "usr/bin"), "LC_ALL": "C"}
    environment["LD_LIBRARY_PATH"] = ":".join({str(path.parent) for path in files if ".so." in path.name})
    command = [str(tmp_path / "usr/bin/git"), "ls-remote", "https://127.0.0.1:9/a.git"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "unable to access 'https://127.0.0.1:9/a.git/': Failed to connect" in done.stderr

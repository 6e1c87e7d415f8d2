"""Builds a base image if none can be pulled: a small system from this machine's own package mirror."""

import contextlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, Final, cast

from everturn_local.images.engine import Engine, ImageError

LIMIT_S: Final = 600
QUESTION_LIMIT_S: Final = 30
SHOWN_CHARS: Final = 2000
TARGET_FORMAT: Final = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
EMPTIED: Final = (
    "var/cache/apt",
    "var/cache/debconf",
    "var/lib/apt/lists",
    "var/log",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
)
"""Folders that only people and the package manager read."""
OF_THIS_MACHINE: Final = ("etc/apt/sources.list", "etc/hostname", "etc/resolv.conf")
"""Files in which the tool leaves addresses and names of this machine."""


def build_base_name() -> str:
    """The image name, with the release of the system."""
    return f"everturn/base:{load_suite()}"


def load_suite() -> str:
    """The release of this machine, whose packages it can download. Raises ImageError."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    if not suite:
        raise ImageError("this system has no package mirror that debootstrap knows")
    return suite


def check_can_make() -> None:
    """Raises ImageError with a remedy if this machine can't build a base image."""
    if os.geteuid() != 0:
        raise ImageError(
            "building a base image needs root. Run it with sudo once, or name an image: make images BASE=..."
        )
    for program in ("debootstrap", "apt-get", "unshare"):
        if shutil.which(program) is None:
            raise ImageError(
                f"building a base image needs {program}. Install it, or name an image: make images BASE=..."
            )


def save_base(engine: Engine, name: str, folder: Path) -> None:
    """Build the system in a temporary folder under `folder` and import it into the engine. Raises ImageError."""
    check_can_make()
    with tempfile.TemporaryDirectory(prefix="base-", dir=folder) as place:
        root = Path(place) / "root"
        _run_debootstrap(root)
        remove_extras(root)
        with _open_tar(root) as tar:
            engine.import_image(tar, name)


def load_mirror(suite: str) -> str:
    """The mirror of this machine for the main packages of a release; empty for the tool's own default."""
    done = subprocess.run(
        ["/usr/bin/env", "apt-get", "indextargets", "--format", TARGET_FORMAT, "Created-By: Packages"],
        capture_output=True,
        text=True,
        timeout=QUESTION_LIMIT_S,
        check=False,
    )
    return find_mirror(done.stdout, suite)


def find_mirror(targets: str, suite: str) -> str:
    """Find the mirror in lines of `address release component`."""
    lines = (line.split() for line in targets.splitlines())
    return next((words[0] for words in lines if words[1:] == [suite, "main"]), "")


def remove_extras(root: Path) -> None:
    """Remove what no program reads and what identifies this machine; licences stay."""
    for name in EMPTIED:
        for path in (root / name).glob("*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in (root / "usr/share/doc").rglob("*"):
        if path.name != "copyright" and not path.is_dir():
            path.unlink()
    for name in OF_THIS_MACHINE:
        if (root / name).exists():
            (root / name).write_text("")


def _run_debootstrap(root: Path) -> None:
    suite = load_suite()
    # In a mount namespace: however it ends, nothing of this machine stays mounted under a folder that we delete.
    command = ["unshare", "--mount", "debootstrap", "--variant=minbase", "--include=python3", suite, str(root)]
    command += [mirror] if (mirror := load_mirror(suite)) else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"debootstrap did not finish within {LIMIT_S} s") from error
    if done.returncode != 0:
        raise ImageError(f"debootstrap failed:\n{(done.stdout + done.stderr)[-SHOWN_CHARS:]}")


@contextlib.contextmanager
def _open_tar(root: Path) -> Generator[BinaryIO]:
    command = ["tar", "-C", str(root), "--one-file-system", "--exclude=./dev/*", "-c", "."]
    with tempfile.TemporaryFile(dir=root.parent) as tar:
        subprocess.run(command, stdout=tar, timeout=LIMIT_S, check=True)
        tar.seek(0)
        yield cast("BinaryIO", tar)

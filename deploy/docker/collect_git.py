"""Copies what the services need of git into a folder, under the same paths: python3 collect_git.py /git

Runs in the Dockerfiles of the worker and of the ingress, with the standard library only. It is the program, its part
for HTTPS, the libraries of both except those of the C library, and the licences: no Perl, no SSH, no shell scripts.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

GIT: Final = Path("/usr/bin/git")
UPLOAD_PACK: Final = Path("/usr/bin/git-upload-pack")
"""Git itself under another name, which answers for file:// addresses."""
_LIBRARY: Final = re.compile(r"=> (/\S+) \(")
_OF_THE_C_LIBRARY: Final = re.compile(r"lib(c|dl|m|pthread|resolv|rt)\.so\.\d+")


def main(words: Sequence[str]) -> int:
    target = Path(words[0])
    core = Path(_run("git", "--exec-path").strip())
    programs = [GIT, core / "git-remote-http"]
    for file in dict.fromkeys((*programs, *find_libraries(programs))):
        _copy(file, target)
        for licence in find_licences(file):
            _copy(licence, target)
    _link(target, UPLOAD_PACK, GIT.name)
    _link(target, core / "git-remote-https", "git-remote-http")
    return 0


def find_libraries(programs: Sequence[Path]) -> Iterator[Path]:
    """The libraries that these programs load, without those of the C library, which every system has."""
    for found in _LIBRARY.findall(_run("ldd", *map(str, programs))):
        library = Path(found)
        if not _OF_THE_C_LIBRARY.fullmatch(library.name):
            # /lib is a link to /usr/lib, which a copy must not replace by a folder.
            yield Path("/usr") / library.relative_to("/") if found.startswith("/lib/") else library


def find_licences(file: Path) -> Iterator[Path]:
    """The licence of the package that a file belongs to, if the package manager knows it."""
    for name in (str(file), str(file).removeprefix("/usr")):
        command = ["/usr/bin/dpkg-query", "--search", name]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            licence = Path("/usr/share/doc", found.stdout.partition(":")[0], "copyright")
            if licence.exists():
                yield licence
            return


def _copy(file: Path, target: Path) -> None:
    copy = target / file.relative_to("/")
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, copy)


def _link(target: Path, name: Path, to: str) -> None:
    link = target / name.relative_to("/")
    link.unlink(missing_ok=True)
    link.symlink_to(to)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

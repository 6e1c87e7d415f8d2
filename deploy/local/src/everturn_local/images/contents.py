"""What the images that run programs are built from: their Dockerfiles, and the files that these copy."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from everturn_local.images.context import Context, build_digest
from everturn_local.images.engine import FoundImage
from everturn_local.settings import REPOSITORY

DOCKERFILES: Final = REPOSITORY / "deploy" / "docker"
CONTENT_LABEL: Final = "everturn.content"
"""The label with the digest of the sources that an image was built from; docker-compose.yml sets it."""
EXECUTOR: Final = "everturn/executor:latest"
SUPERVISOR: Final = "everturn/exec-supervisor:latest"
RUN_IMAGES: Final[Mapping[str, str]] = {SUPERVISOR: "exec-supervisor.Dockerfile", EXECUTOR: "executor.Dockerfile"}
"""The images that a broker starts for each run of a program, and their Dockerfiles."""
_COPY: Final = re.compile(r"^COPY +(?!--from)((?:\\\n|.)+)$", re.MULTILINE)


def compute_content(image: str) -> str:
    """The digest of everything in the repository that one of RUN_IMAGES is built from."""
    return build_digest(load_inputs(DOCKERFILES / RUN_IMAGES[image]), {})


def is_current(name: str, image: FoundImage) -> bool:
    """Whether one of RUN_IMAGES was built from the current sources, whatever its base is."""
    return image.labels.get(CONTENT_LABEL) == compute_content(name)


def load_inputs(dockerfile: Path) -> Context:
    """The Dockerfile and the files that it copies, by their path in the repository."""
    files = {dockerfile, *(file for source in find_copied(dockerfile.read_text()) for file in _load_files(source))}
    return {file.relative_to(REPOSITORY).as_posix(): file for file in sorted(files)}


def find_copied(dockerfile: str) -> list[str]:
    """The sources of the COPY instructions, except those that copy from another stage."""
    copied = [match[1].replace("\\\n", " ").split() for match in _COPY.finditer(dockerfile)]
    return [source for *sources, _ in copied for source in sources]


def _load_files(source: str) -> Iterator[Path]:
    for found in REPOSITORY.glob(source):
        files = found.rglob("*") if found.is_dir() else [found]
        yield from (file for file in files if file.is_file() and "__pycache__" not in file.parts)

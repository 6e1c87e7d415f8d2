"""The compose program of this machine: the engine's own `docker compose`, or `docker-compose`."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.core.errors import EverturnError
from everturn_local.settings import REPOSITORY

FILE: Final = REPOSITORY / "deploy" / "docker-compose.yml"
QUESTION_LIMIT_S: Final = 60
REMEDY: Final = "On Debian and Ubuntu: sudo apt-get install docker-compose"


class NoCompose(EverturnError):
    """There is no compose program here."""


class ComposeFailed(EverturnError):
    """The compose program failed."""


@dataclass(frozen=True, slots=True)
class Compose:
    """The program, ready for one installation. `env` is its whole environment."""

    program: Sequence[str]
    project: str
    env: Mapping[str, str]
    options: Sequence[str] = ()

    def build_command(self, *words: str) -> list[str]:
        return [*self.program, "--project-name", self.project, "--file", str(FILE), *self.options, *words]

    def run(self, *words: str, limit_s: float) -> None:
        """Run a command and show its output. Raises ComposeFailed."""
        try:
            code = subprocess.run(self.build_command(*words), env=self.env, timeout=limit_s, check=False).returncode
        except subprocess.TimeoutExpired as error:
            raise ComposeFailed(f"`{words[0]}` did not finish within {limit_s:g} s.") from error
        if code != 0:
            raise ComposeFailed(f"`{words[0]}` exited with {code}; see its output above.")

    def follow(self, *words: str) -> int:
        """Run a command without a time limit, until Ctrl-C; returns its exit code."""
        with subprocess.Popen(self.build_command(*words), env=self.env) as running:
            try:
                return running.wait()
            except KeyboardInterrupt:
                return running.wait()

    def capture(self, *words: str) -> str:
        """Run a command and return its standard output. Raises ComposeFailed."""
        done = subprocess.run(
            self.build_command(*words),
            env=self.env,
            capture_output=True,
            text=True,
            timeout=QUESTION_LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise ComposeFailed(done.stderr.strip())
        return done.stdout.strip()


def find_program(path: str) -> Sequence[str]:
    """The command prefix of the compose program. `path` is the search path. Raises NoCompose."""
    docker = shutil.which("docker", path=path)
    if docker is not None and _answers([docker, "compose", "version"]):
        return [docker, "compose"]
    if (standalone := shutil.which("docker-compose", path=path)) is not None:
        return [standalone]
    raise NoCompose(REMEDY)


def _answers(command: Sequence[str | Path]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=QUESTION_LIMIT_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False

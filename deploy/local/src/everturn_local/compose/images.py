"""`make images`: builds our images as docker-compose.yml says, without a registry if none can be reached."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from everturn_local.compose.program import FILE, Compose, find_program
from everturn_local.images.bases import choose_bases
from everturn_local.images.contents import EXECUTOR, SUPERVISOR, compute_content
from everturn_local.images.engine import open_engine

RUN_SERVICES: Final = ("supervisor", "executor")
"""Services of the compose file whose images a broker starts for each run of a program."""
SERVICES: Final[Mapping[str, Sequence[str]]] = {
    "all": (*RUN_SERVICES, "broker", "chat-proc", "migrate"),
    "runs": RUN_SERVICES,
    "services": ("broker", "chat-proc", "migrate"),
}
"""The values of `make images ONLY=`. The image of the ingress is built as that of `migrate`."""
BUILD_LIMIT_S: Final = 1_800.0
CACHE: Final = Path("~/.cache/everturn")
"""For the downloads of builds without a registry."""
FIRST_SETTINGS: Final = FILE.with_name("everturn.env.example")

Report = Callable[[str], None]


def run_images(environment: Mapping[str, str], *, only: str = "all", report: Report) -> int:
    """Return 0 once the images of `only` exist. Raises EverturnError."""
    # The file names settings of an installation, which a build does not need.
    variables = {**environment, "EVERTURN_ENV": str(FIRST_SETTINGS)}
    program = find_program(environment.get("PATH", os.defpath))
    save_images(Compose(program, "everturn", variables), only=only, report=report)
    return 0


def save_images(compose: Compose, *, only: str, report: Report) -> None:
    """Build what has changed. Raises EverturnError.

    Only one runs at a time on this machine; others wait for it.
    """
    started = time.monotonic()
    cache = CACHE.expanduser().absolute()
    with run_cache_lock(cache):
        with open_engine(compose.env) as engine:
            bases = choose_bases(engine, compose.env, cache, report)
        variables = {
            **compose.env,
            **bases,
            "EVERTURN_VERSION": version("everturn-local"),
            "SUPERVISOR_CONTENT": compute_content(SUPERVISOR),
            "EXECUTOR_CONTENT": compute_content(EXECUTOR),
        }
        building = Compose(compose.program, compose.project, variables, compose.options)
        building.run("build", *SERVICES[only], limit_s=BUILD_LIMIT_S)
    report(f"the images are ready after {time.monotonic() - started:.1f} s")


@contextlib.contextmanager
def run_cache_lock(cache: Path) -> Generator[None]:
    """Lock the cache, because two concurrent builds would do the same work. The kernel releases the lock of a dead
    process."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "images.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

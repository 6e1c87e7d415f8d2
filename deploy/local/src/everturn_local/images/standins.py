"""A stand-in for the build images of the Dockerfiles, where no registry can be reached.

It is our base image with the wheels of both locks, pip, Node, a cache of npm, and this machine's git. Its settings let
pip and npm use these instead of an index. The Dockerfiles are the same, and what they build holds nothing of it but
installed packages and git.
"""

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import Marker

from everturn_local.images.context import Context, build_digest, load_folder
from everturn_local.images.engine import Engine, FoundImage, ImageError
from everturn_local.settings import REPOSITORY, load_environment
from everturn_local.web.choice import open_web_client
from everturn_local.web.client import WEB
from everturn_local.web.node import Node
from everturn_local.web.stamps import LOCKED

REPOSITORY_NAME: Final = "everturn/build"
DOCKERFILE: Final = Path(__file__).with_name("standin.Dockerfile")
SELECT: Final = REPOSITORY / "deploy" / "docker" / "select_libraries.py"
COLLECT_GIT: Final = REPOSITORY / "deploy" / "docker" / "collect_git.py"
SERVICES: Final = ("services/ingress", "services/chat-proc", "services/exec-supervisor")
GENERATED_LOCK: Final = REPOSITORY / "services" / "executor" / "requirements.lock"
KEPT: Final = 3
"""How many of these images are kept: other checkouts can have other locks."""
LIMIT_S: Final = 600
SHOWN_CHARS: Final = 2000
MIN_GLIBC: Final = (2, 28)
NPM_INSTALL: Final = ("ci", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=60000")
_ENTRY: Final = re.compile(r"^([A-Za-z0-9._-]+==[^ \n]+)(?: ; ([^\n]*?))?( \\\n.*(?:\n[ \t].*)*)", re.MULTILINE)

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BasePython:
    """The properties that determine which wheels fit. `version` is like 3.12.4, `machine` like x86_64, `libc` like
    2.36."""

    version: str
    machine: str
    libc: str


ASK_PYTHON: Final = "import platform; print(platform.python_version(), platform.machine(), *platform.libc_ver())"
"""Prints the input of `parse_python`."""


def parse_python(printed: str) -> BasePython:
    """Parse the base's properties. Raises ImageError for a base without matching wheels."""
    match printed.split():
        case [version, machine, "glibc", libc] if tuple(map(int, libc.split(".")[:2])) >= MIN_GLIBC:
            return BasePython(version, machine, libc)
        case _:
            raise ImageError(f"the base image needs glibc {MIN_GLIBC[0]}.{MIN_GLIBC[1]} or newer; it has: {printed}")


def save_build_image(engine: Engine, base: FoundImage, cache: Path, report: Report) -> str:
    """The name of the image, which is built if the locks or the base have changed. Raises ImageError."""
    node = open_web_client(report).node
    locks = [load_services_lock(), GENERATED_LOCK.read_text()]
    packages = {name: WEB / name for name in LOCKED}
    facts = {"base": base.id, "locks": hashlib.sha256("\0".join(locks).encode()).hexdigest()}
    inputs = {**packages, "Dockerfile": DOCKERFILE, COLLECT_GIT.name: COLLECT_GIT}
    name = f"{REPOSITORY_NAME}:{build_digest(inputs, facts)[:16]}"
    if engine.try_load_image(name) is None:
        python = parse_python(engine.run_python(base.id, ASK_PYTHON))
        report(f"building {name} with the packages of the locks, for builds without a registry; this takes minutes")
        with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as folder:
            context = {"Dockerfile": DOCKERFILE, **load_node(node), **load_pip()}
            for number, lock in enumerate(locks):
                context |= save_wheels(python, lock, Path(folder) / f"wheels{number}")
            context |= save_git(Path(folder) / "git")
            context |= save_npm_cache(node, packages, Path(folder) / "npm")
            arguments = {"BASE": base.id, "REGISTRY": load_npm_registry(node)}
            engine.build_image(context, name=name, arguments=arguments, labels={})
        for earlier in engine.load_tags(REPOSITORY_NAME)[KEPT:]:
            engine.try_remove_tag(earlier)
    return name


def load_services_lock() -> str:
    """The entries of requirements.lock that the services need."""
    return _run([sys.executable, "-I", str(SELECT), *SERVICES], REPOSITORY)


def save_wheels(python: BasePython, lock: str, folder: Path) -> Context:
    """Download the wheels of a lock and verify their hashes. Raises ImageError."""
    folder.mkdir()
    (folder / "lock").write_text(select_entries(lock, python))
    wanted = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", python.version]
    platforms = [word for platform in build_platforms(python) for word in ("--platform", platform)]
    pip_command = [sys.executable, "-m", "pip", "download", "--quiet", *wanted, *platforms]
    _run([*pip_command, "--dest", str(folder), "--requirement", str(folder / "lock")], folder)
    return {name: path for name, path in load_folder(folder, "wheels").items() if name.endswith(".whl")}


def select_entries(lock: str, python: BasePython) -> str:
    """The entries for this Python, without their markers: pip would ask the Python that it runs with."""
    version = {"python_version": ".".join(python.version.split(".")[:2]), "python_full_version": python.version}
    entries = [
        f"{name}{rest}\n"
        for name, marker, rest in _ENTRY.findall(lock)
        if not marker or Marker(marker).evaluate({**version, "platform_machine": python.machine})
    ]
    return "".join(entries)


def build_platforms(python: BasePython) -> Sequence[str]:
    """Every platform that the base's C library runs wheels of."""
    newest = int(python.libc.split(".")[1])
    return [
        f"manylinux2014_{python.machine}",
        *(f"manylinux_2_{minor}_{python.machine}" for minor in range(5, newest + 1)),
    ]


def load_pip() -> Context:
    """The pip of our environment, which is Python alone. Raises ImageError."""
    found = importlib.util.find_spec("pip")
    if found is None or found.origin is None:
        raise ImageError("the environment has no pip; run: make setup")
    files = load_folder(Path(found.origin).parent, "root/opt/pip/pip")
    return {name: path for name, path in files.items() if "/__pycache__/" not in name}


def save_git(folder: Path) -> Context:
    """The git of this machine with its libraries. Raises ImageError."""
    if shutil.which("git") is None:
        raise ImageError("the images of workers and of the ingress need git; install it on this machine")
    _run([sys.executable, "-I", str(COLLECT_GIT), str(folder)], REPOSITORY)
    return load_folder(folder, "root")


def load_node(node: Node) -> Context:
    return {
        "root/usr/local/bin/node": node.program.resolve(),
        **load_folder(node.npm.resolve().parents[1], "root/opt/npm"),
    }


def save_npm_cache(node: Node, packages: Mapping[str, Path], folder: Path) -> Context:
    """Install the web client's packages elsewhere, for what npm keeps of them. Raises ImageError."""
    folder.mkdir()
    for name, path in packages.items():
        shutil.copy(path, folder / name)
    _run_npm(node, folder, *NPM_INSTALL, "--cache", str(folder / "cache"))
    return load_folder(folder / "cache" / "_cacache", "root/opt/npm-cache/_cacache")


def load_npm_registry(node: Node) -> str:
    """The registry that this machine's npm is configured for: the cache is found by its address."""
    return _run_npm(node, WEB, "config", "get", "registry").strip()


def _run_npm(node: Node, folder: Path, *words: str) -> str:
    path = f"{node.program.parent}:{load_environment().get('PATH', '')}"
    return _run([str(node.program), str(node.npm), *words], folder, {**load_environment(), "PATH": path})


def _run(command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a program and return what it prints. Raises ImageError with the end of its error output."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"{' '.join(command[:4])} did not finish within {LIMIT_S} s") from error
    if done.returncode != 0:
        raise ImageError(f"{' '.join(command[:4])} failed:\n{(done.stdout + done.stderr)[-SHOWN_CHARS:].strip()}")
    return done.stdout

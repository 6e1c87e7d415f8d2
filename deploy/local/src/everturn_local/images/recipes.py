"""The contents of our images: a Dockerfile, our files, libraries; for the ingress also its page and migrations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final

from everturn_local.images.context import Context, load_folder
from everturn_local.images.locked import build_runtime_lock, find_wanted
from everturn_local.images.modules import load_modules
from everturn_local.settings import REPOSITORY
from everturn_local.web.client import WEB
from everturn_local.web.stamps import build_sources_digest

DEFAULT_BASE: Final = "python:3.12-slim-bookworm"
"""The same as in the Dockerfiles; if it can't be pulled, one is built."""
CONTENT_LABEL: Final = "everturn.content"
BASE_LABEL: Final = "everturn.base"
LIBRARY: Final = REPOSITORY / "libs" / "common"
LOCK: Final = REPOSITORY / "requirements.lock"
GENERATED_LOCK: Final = REPOSITORY / "services" / "executor" / "requirements.lock"
BYTE_CODE: Final = "__pycache__"


class Libraries(Enum):
    """The libraries that are installed in addition to our own files."""

    NONE = "none"
    OF_GENERATED_CODE = "of generated code"
    OF_SERVICE = "of the service"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image. `package` is below `services`, in its folder of the same name with hyphens.

    Of the common package an image gets only the modules that its own files import. With `loads_drivers` it gets all
    except those for tests, because drivers are loaded by name. With `serves_page` it gets the built web client and the
    migrations.
    """

    repository: str
    dockerfile: str
    package: str
    without: Sequence[str] = ()
    libraries: Libraries = Libraries.NONE
    loads_drivers: bool = False
    serves_page: bool = False

    @property
    def latest(self) -> str:
        return f"{self.repository}:latest"

    @property
    def service(self) -> Path:
        return REPOSITORY / "services" / self.package.replace("_", "-")


SUPERVISOR: Final = Recipe(
    "everturn/exec-supervisor",
    "exec-supervisor.Dockerfile",
    "exec_supervisor",
    ("broker", "bubblewrap", "settings.py"),
)
EXECUTOR: Final = Recipe("everturn/executor", "executor.Dockerfile", "executor", libraries=Libraries.OF_GENERATED_CODE)
RUN_RECIPES: Final = (SUPERVISOR, EXECUTOR)
"""The images that a broker starts for each run of a program."""

BROKER: Final = Recipe(
    "everturn/broker",
    "broker.Dockerfile",
    "exec_supervisor",
    ("bubblewrap", "pair"),
    libraries=Libraries.OF_SERVICE,
)
INGRESS: Final = Recipe(
    "everturn/ingress",
    "ingress.Dockerfile",
    "ingress",
    libraries=Libraries.OF_SERVICE,
    loads_drivers=True,
    serves_page=True,
)
WORKER: Final = Recipe(
    "everturn/chat-proc",
    "chat-proc.Dockerfile",
    "chat_proc",
    libraries=Libraries.OF_SERVICE,
    loads_drivers=True,
)
SERVICE_RECIPES: Final = (BROKER, INGRESS, WORKER)
"""The images that deploy/docker-compose.yml and deploy/k8s start."""


def load_sources(recipe: Recipe) -> Context:
    """The Dockerfile, our files under `python/`, and for some images those under `migrations/`."""
    dockerfile = REPOSITORY / "deploy" / "docker" / recipe.dockerfile
    modules = load_whole_packages(recipe) if recipe.loads_drivers else load_imported_modules(recipe)
    migrations: Context = load_clean_folder(REPOSITORY / "migrations", "migrations") if recipe.serves_page else {}
    return {"Dockerfile": dockerfile, **{f"python/{name}": path for name, path in modules.items()}, **migrations}


def load_imported_modules(recipe: Recipe) -> Context:
    package = recipe.service / "src" / recipe.package
    return load_modules(package, without=recipe.without, library=LIBRARY / "src" / "everturn")


def load_whole_packages(recipe: Recipe) -> Context:
    """Includes files that are not modules: prompts, prices, types."""
    common = load_clean_folder(LIBRARY / "src" / "everturn", "everturn")
    own = load_clean_folder(recipe.service / "src" / recipe.package, recipe.package)
    return {**common, **own}


def load_clean_folder(folder: Path, prefix: str) -> Context:
    """All files except those that Python generates."""
    return {name: path for name, path in load_folder(folder, prefix).items() if BYTE_CODE not in name.split("/")}


def load_lock(recipe: Recipe) -> str:
    """Names, versions and hashes of an image's libraries; empty for none."""
    match recipe.libraries:
        case Libraries.NONE:
            return ""
        case Libraries.OF_GENERATED_CODE:
            return GENERATED_LOCK.read_text()
        case Libraries.OF_SERVICE:
            wanted = find_wanted(recipe.service / "pyproject.toml", LIBRARY / "pyproject.toml")
            return build_runtime_lock(LOCK.read_text(), wanted)


def load_inputs(recipe: Recipe) -> Context:
    """Every file of the repository whose whole content determines the image."""
    lock = {"requirements.lock": GENERATED_LOCK} if recipe.libraries is Libraries.OF_GENERATED_CODE else {}
    return {**load_sources(recipe), **lock}


def load_facts(recipe: Recipe) -> Mapping[str, str]:
    """Further inputs, each as a digest: the service's entries of the lock, and the sources of the page."""
    of_service = recipe.libraries is Libraries.OF_SERVICE
    facts = {"libraries": sha256(load_lock(recipe).encode()).hexdigest()} if of_service else {}
    return {**facts, "page": build_sources_digest(WEB)} if recipe.serves_page else facts

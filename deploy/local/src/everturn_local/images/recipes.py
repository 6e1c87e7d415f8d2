"""What our two images are made from: a Dockerfile, our files, for the executor also the libraries of generated code."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from everturn_local.images.context import Context
from everturn_local.images.libraries import LOCK
from everturn_local.images.modules import load_modules
from everturn_local.settings import REPOSITORY

DEFAULT_BASE: Final = "python:3.12-slim-bookworm"
"""The same as in the Dockerfiles; where it can't be had, one is made."""
CONTENT_LABEL: Final = "everturn.content"
BASE_LABEL: Final = "everturn.base"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image. `package` is below `services`, in its folder of the same name with hyphens."""

    repository: str
    dockerfile: str
    package: str
    without: Sequence[str]
    has_libraries: bool

    @property
    def latest(self) -> str:
        return f"{self.repository}:latest"


SUPERVISOR: Final = Recipe(
    "everturn/exec-supervisor",
    "exec-supervisor.Dockerfile",
    "exec_supervisor",
    ("broker", "bubblewrap", "settings.py"),
    False,
)
EXECUTOR: Final = Recipe("everturn/executor", "executor.Dockerfile", "executor", (), True)
RECIPES: Final = (SUPERVISOR, EXECUTOR)


def load_sources(recipe: Recipe) -> Context:
    """The Dockerfile, and our files under `python/`."""
    package = REPOSITORY / "services" / recipe.package.replace("_", "-") / "src" / recipe.package
    library = REPOSITORY / "libs" / "common" / "src" / "everturn"
    modules = load_modules(package, without=recipe.without, library=library)
    dockerfile = REPOSITORY / "deploy" / "docker" / recipe.dockerfile
    return {"Dockerfile": dockerfile, **{f"python/{name}": path for name, path in modules.items()}}


def load_inputs(recipe: Recipe) -> Context:
    """Every file of the repository that decides what the image becomes."""
    return {**load_sources(recipe), **({"requirements.lock": LOCK} if recipe.has_libraries else {})}

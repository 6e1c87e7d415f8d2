"""`make images`: builds our images if they are missing or outdated."""

import asyncio
import contextlib
import fcntl
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from everturn_local.images.bases import save_wanted_base, try_load_base
from everturn_local.images.context import Context, build_digest, load_folder
from everturn_local.images.engine import Engine, FoundImage, open_engine
from everturn_local.images.libraries import ASK_PYTHON, BasePython, parse_python, save_libraries
from everturn_local.images.recipes import (
    BASE_LABEL,
    CONTENT_LABEL,
    RUN_RECIPES,
    SERVICE_RECIPES,
    Recipe,
    load_facts,
    load_inputs,
    load_lock,
    load_sources,
)
from everturn_local.settings import load_environment
from everturn_local.web.choice import open_web_client

KEPT: Final = 4
"""How many earlier images of a repository are kept, so that returning to earlier sources costs nothing."""
RECIPES: Final[Mapping[str, Sequence[Recipe]]] = {
    "all": (*RUN_RECIPES, *SERVICE_RECIPES),
    "runs": RUN_RECIPES,
    "services": SERVICE_RECIPES,
}
"""The values of `make images ONLY=`."""
CACHE: Final = Path("~/.cache/everturn")
"""For downloads; it may be deleted."""
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """An image and the digest of everything that determines its content."""

    recipe: Recipe
    content: str

    @property
    def name(self) -> str:
        return f"{self.recipe.repository}:{self.content[:16]}"


def run_images(*, base: str = "", only: str = "all", report: Report) -> int:
    """Return 0 once the images of `only` exist. Raises EverturnError.

    Only one runs at a time on this machine; others wait for it.
    """
    started = time.monotonic()
    cache = CACHE.expanduser()
    with open_engine(load_environment()) as engine, run_cache_lock(cache):
        names = ImageMaker(engine, cache, report).save_images(base, RECIPES[only])
    report(f"{', '.join(names)} are ready after {time.monotonic() - started:.1f} s")
    return 0


class ImageMaker:
    """Builds images with one engine. `cache` is a folder for downloads."""

    def __init__(self, engine: Engine, cache: Path, report: Report) -> None:
        self._engine = engine
        self._cache = cache
        self._report = report

    def save_images(self, base: str, recipes: Sequence[Recipe]) -> list[str]:
        """Build missing images; returns the names of all. Raises ImageError."""
        ground = try_load_base(self._engine, base) or save_wanted_base(self._engine, base, self._cache, self._report)
        wanted = [build_wanted(recipe, ground.id) for recipe in recipes]
        missing = [image for image in wanted if self._engine.try_load_image(image.name) is None]
        if missing:
            python = parse_python(self._engine.run_python(ground.id, ASK_PYTHON))
            for image in missing:
                self._save_image(image, ground, python)
        for image in wanted:
            self._engine.tag_image(image.name, alias=image.recipe.latest)
            self._remove_old(image)
        return [image.recipe.latest for image in wanted]

    def _save_image(self, wanted: Wanted, ground: FoundImage, python: BasePython) -> None:
        started = time.monotonic()
        self._report(f"building {wanted.recipe.repository}")
        self._engine.build_image(
            {
                **load_sources(wanted.recipe),
                **self._load_libraries(wanted.recipe, python),
                **self._load_page(wanted.recipe),
            },
            name=wanted.name,
            arguments={"BASE": ground.id, "PYTHON": python.version, "VERSION": version("everturn-local")},
            labels={CONTENT_LABEL: wanted.content, BASE_LABEL: ground.id},
        )
        self._report(f"built {wanted.name} in {time.monotonic() - started:.1f} s")

    def _load_libraries(self, recipe: Recipe, python: BasePython) -> Context:
        lock = load_lock(recipe)
        return save_libraries(python, self._cache, lock) if lock else {}

    def _load_page(self, recipe: Recipe) -> Context:
        if not recipe.serves_page:
            return {}
        return load_folder(asyncio.run(open_web_client(self._report).save_build()), "web")

    def _remove_old(self, wanted: Wanted) -> None:
        current = {wanted.name, wanted.recipe.latest}
        tags = self._engine.load_tags(wanted.recipe.repository)
        for name in [tag for tag in tags if tag not in current][KEPT:]:
            self._engine.try_remove_tag(name)


def is_current(recipe: Recipe, image: FoundImage) -> bool:
    """Whether an image was built from the current sources, whatever its base is."""
    ground = image.labels.get(BASE_LABEL, "")
    return image.labels.get(CONTENT_LABEL) == build_wanted(recipe, ground).content


def build_wanted(recipe: Recipe, ground: str) -> Wanted:
    """`ground` is the id of the base: a newer base also results in another image."""
    facts = {"base": ground, "version": version("everturn-local"), **load_facts(recipe)}
    return Wanted(recipe, build_digest(load_inputs(recipe), facts))


@contextlib.contextmanager
def run_cache_lock(cache: Path) -> Generator[None]:
    """Lock the cache, because two concurrent builds would do the same work. The kernel releases the lock of a dead
    process."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "images.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

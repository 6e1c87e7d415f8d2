"""Chooses the images that ours are built with: those of the Dockerfiles, the operator's, or stand-ins."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from everturn_local.images.debian import build_base_name, save_base
from everturn_local.images.engine import Engine, FoundImage, ImageError
from everturn_local.images.standins import save_build_image

DEFAULT_BASE: Final = "python:3.12-slim-bookworm"
"""The same as in the Dockerfiles."""
NAMED: Final = ("PYTHON_IMAGE", "PYTHON_BUILD_IMAGE", "NODE_IMAGE")
"""Variables of docker-compose.yml with which an operator names other images. They are never replaced."""

Report = Callable[[str], None]


def choose_bases(engine: Engine, environment: Mapping[str, str], cache: Path, report: Report) -> Mapping[str, str]:
    """Variables of docker-compose.yml, none if the images of the Dockerfiles or of the operator can be used.

    Without a registry they name stand-ins, which are made if they are missing, and the builds have no network. Raises
    ImageError.
    """
    if any(environment.get(name) for name in NAMED) or engine.try_load_image(DEFAULT_BASE):
        return {}
    base = engine.try_load_image(build_base_name())
    if base is None and not (base := _save_base(engine, cache, report)):
        return {}
    built = save_build_image(engine, base, cache, report)
    return {"PYTHON_IMAGE": base.id, "PYTHON_BUILD_IMAGE": built, "NODE_IMAGE": built, "BUILD_NETWORK": "none"}


def _save_base(engine: Engine, cache: Path, report: Report) -> FoundImage | None:
    """Build the stand-in; None if the usual base could be pulled."""
    try:
        report(f"pulling {DEFAULT_BASE}")
        engine.pull_image(DEFAULT_BASE)
    except ImageError as error:
        report(f"it can't be pulled ({error})")
        report(f"building {build_base_name()} from this system's packages; this takes about a minute")
        save_base(engine, build_base_name(), cache)
        if found := engine.try_load_image(build_base_name()):
            return found
        raise ImageError("the base image was built but can't be found") from error
    return None

"""Chooses the base image: one that the engine has, one that it can pull, or finally one that we build."""

from collections.abc import Callable
from pathlib import Path

from everturn_local.images.debian import build_base_name, save_base
from everturn_local.images.engine import Engine, FoundImage, ImageError
from everturn_local.images.recipes import DEFAULT_BASE

Report = Callable[[str], None]


def try_load_base(engine: Engine, wanted: str) -> FoundImage | None:
    """The base image if it exists locally. `wanted` is empty unless the user named one."""
    found = engine.try_load_image(wanted or DEFAULT_BASE)
    return found if found or wanted else engine.try_load_image(build_base_name())


def save_wanted_base(engine: Engine, wanted: str, cache: Path, report: Report) -> FoundImage:
    """Pull or build one. A base that the user named is never replaced: raises ImageError if it can't be pulled."""
    try:
        report(f"pulling {wanted or DEFAULT_BASE}")
        engine.pull_image(wanted or DEFAULT_BASE)
    except ImageError as error:
        if wanted:
            raise
        report(f"it can't be pulled ({error})")
        report(f"building {build_base_name()} from this system's packages; this takes about a minute")
        save_base(engine, build_base_name(), cache)
    found = try_load_base(engine, wanted)
    if found is None:
        raise ImageError("the base image is gone again")
    return found

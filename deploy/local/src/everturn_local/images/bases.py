"""Chooses the image that ours stand on: what the engine has, what it can pull, and at last one that we make."""

from collections.abc import Callable
from pathlib import Path

from everturn_local.images.debian import build_base_name, save_base
from everturn_local.images.engine import Engine, FoundImage, ImageError
from everturn_local.images.recipes import DEFAULT_BASE

Report = Callable[[str], None]


def try_load_base(engine: Engine, wanted: str) -> FoundImage | None:
    """The base that is here already. `wanted` is empty when nobody named one."""
    found = engine.try_load_image(wanted or DEFAULT_BASE)
    return found if found or wanted else engine.try_load_image(build_base_name())


def save_wanted_base(engine: Engine, wanted: str, cache: Path, report: Report) -> FoundImage:
    """Get one. A base that somebody named is never replaced by another: raises ImageError when it can't be had."""
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

"""Whether `make run` can run generated code in containers; otherwise the reason and a remedy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.core.errors import EverturnError
from everturn.execution.profiles import load_profiles
from everturn_local.images.contents import RUN_IMAGES, is_current
from everturn_local.images.engine import Engine, EngineRefusedError, NoEngineError, open_engine

CHECK_LIMIT_S: Final = 10
"""Seconds after which an unresponsive engine counts as absent."""
MAX_SOCKET_BYTES: Final = 107
BUILD: Final = "make images"
MODES_WITH_BROKER: Final = ("", "auto", "containers")
"""Values of the worker's EXECUTION_MODE that may use a broker."""


@dataclass(frozen=True, slots=True)
class ContainerChoice:
    """`chosen`: start a broker. `why` is for people."""

    chosen: bool
    why: str


def choose_containers(environment: Mapping[str, str], socket: Path) -> ContainerChoice:
    """Choose containers if everything they need exists. `socket` is the broker's future socket. Raises Invalid."""
    if obstacle := find_setting(environment, socket):
        return ContainerChoice(False, obstacle)
    try:
        with open_engine(environment, limit_s=CHECK_LIMIT_S) as engine:
            images = load_image_names(environment)
            if obstacle := find_missing_image(engine, images):
                return ContainerChoice(False, obstacle)
            return ContainerChoice(True, f"engine {engine.load_version()}")
    except EngineRefusedError:
        return ContainerChoice(False, "this user may not use the container engine: add it to the group docker")
    except NoEngineError:
        return ContainerChoice(False, f"no container engine responds: start Docker, then {BUILD}")
    except EverturnError as error:
        return ContainerChoice(False, f"the container engine fails: {error}")


def find_setting(environment: Mapping[str, str], socket: Path) -> str:
    """The setting that rules out our own broker, before any engine is queried; empty if none does."""
    if environment.get("BROKER_URL"):
        return "the broker that BROKER_URL names is used"
    if (mode := environment.get("EXECUTION_MODE", "")) not in MODES_WITH_BROKER:
        return f"EXECUTION_MODE={mode}"
    if len(str(socket).encode()) > MAX_SOCKET_BYTES:
        return f"EVERTURN_HOME is too long: a socket in it may have {MAX_SOCKET_BYTES} bytes, {socket}"
    return ""


def load_image_names(environment: Mapping[str, str]) -> list[str]:
    """Every image that the operator's profiles name, without duplicates."""
    profiles = load_profiles(environment.get("EXECUTION_PROFILES", "")).values()
    named = [name for profile in profiles for name in (profile.supervisor_image, profile.executor_image)]
    return list(dict.fromkeys(named))


def find_missing_image(engine: Engine, names: list[str]) -> str:
    """The image that must be built first; empty if all exist and ours match the current sources."""
    for name in names:
        image = engine.try_load_image(name)
        if image is None:
            return f"there is no image {name}: {BUILD}" if name in RUN_IMAGES else f"there is no image {name}"
        if name in RUN_IMAGES and not is_current(name, image):
            return f"the image {name} was built from other sources: {BUILD}"
    return ""

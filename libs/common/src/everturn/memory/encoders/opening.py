"""Chooses and builds the encoder; the libraries of each are imported when it is chosen, or later.

The encoder is that of the configuration file, otherwise `EMBEDDER`, otherwise the local one, otherwise OpenAI if there
is a key, otherwise the lexical one. Workers index with it and the ingress searches with it, so both must choose alike.
"""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, assert_never

from everturn.core.errors import Invalid
from everturn.memory.embedder import Embedder
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.encoders.minilm import MiniLmEmbedder

DEFAULT_OPENAI_MODEL = "text-embedding-3-small"

EmbedderKind = Literal["minilm", "openai", "hashed"]

_FORMS = "'auto', 'minilm', 'openai:<model>' or 'hashed'"


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The chosen encoder and the reason as a sentence. `model` is the provider's name for it, if it has one."""

    kind: EmbedderKind
    model: str
    why: str


class BadEmbedderSetting(Invalid):
    """The setting of the encoder can't be used."""


def resolve_embedder(setting: str, role: str | None, environment: Mapping[str, str]) -> EmbedderChoice:
    """The encoder of a process. `setting` is EMBEDDER; `role` is `embedding` in the configuration file's
    `[models.roles]`, and overrides it. Raises BadEmbedderSetting."""
    installed = is_minilm_installed()
    if role is None:
        return choose_embedder(setting, environment, minilm_installed=installed)
    return choose_embedder(role, environment, minilm_installed=installed, source="models.roles.embedding")


def choose_embedder(
    setting: str, environment: Mapping[str, str], *, minilm_installed: bool, source: str = "EMBEDDER"
) -> EmbedderChoice:
    """The encoder for these values; raises BadEmbedderSetting with a sentence for the operator, which names the
    `source` of the setting."""
    setting = setting.strip()
    kind, colon, model = (part.strip() for part in setting.partition(":"))
    match kind, bool(colon), model:
        case (("auto" | ""), False, ""):
            return _choose_by_what_is_there(environment, minilm_installed=minilm_installed)
        case "minilm", False, "":
            if not minilm_installed:
                raise BadEmbedderSetting(f"{source} is 'minilm', but the local encoder is not installed.")
            return EmbedderChoice("minilm", "", f"{source}=minilm")
        case "openai", True, str(name) if name:
            if not _has_key(environment):
                raise BadEmbedderSetting(f"{source} names openai, but OPENAI_API_KEY is not set.")
            return EmbedderChoice("openai", name, f"{source}={setting}")
        case "hashed", False, "":
            return EmbedderChoice("hashed", "", f"{source}=hashed: finds words, not meanings")
        case _:
            raise BadEmbedderSetting(f"{source} is {setting!r}; expected {_FORMS}.")


def _choose_by_what_is_there(environment: Mapping[str, str], *, minilm_installed: bool) -> EmbedderChoice:
    if minilm_installed:
        return EmbedderChoice("minilm", "", "its weights are installed")
    if _has_key(environment):
        return EmbedderChoice("openai", DEFAULT_OPENAI_MODEL, "no local weights, and OPENAI_API_KEY is set")
    return EmbedderChoice("hashed", "", "no local weights and no OPENAI_API_KEY: finds words, not meanings")


def _has_key(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("OPENAI_API_KEY", "").strip())


MINILM_FOLDER = Path(sys.prefix) / "share" / "everturn" / "minilm"
"""Where `make setup` and the Dockerfiles write the local encoder's model."""
MINILM_PACKAGES = ("numpy", "onnxruntime", "tokenizers")


def is_minilm_installed() -> bool:
    """Whether the local encoder's model and libraries are installed; imports nothing."""
    return (MINILM_FOLDER / "model.onnx").is_file() and all(find_spec(name) is not None for name in MINILM_PACKAGES)


@asynccontextmanager
async def open_embedder(choice: EmbedderChoice) -> AsyncGenerator[Embedder]:
    """Raises EmbedderUnavailable if a provider's client can't be built."""
    match choice.kind:
        case "minilm":
            minilm = MiniLmEmbedder()
            try:
                yield minilm
            finally:
                await minilm.close()
        case "openai":
            from everturn.memory.encoders.openai import build_embedder

            openai = build_embedder(choice.model)
            try:
                yield openai
            finally:
                await openai.close()
        case "hashed":
            yield HashedEmbedder()
        case _:
            assert_never(choice.kind)

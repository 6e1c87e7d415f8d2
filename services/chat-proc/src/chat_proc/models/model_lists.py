"""Reads what a server's list of models says of one of them, above all its context length.

vLLM, llama.cpp, OpenRouter and Anthropic state it in `/v1/models`, LM Studio in a list of its own, Ollama in neither.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import cast

import httpx2

from chat_proc.models.replies import read_text, try_read_count, try_read_token
from chat_proc.models.roles import Listed
from everturn.models.port import ModelFailed

ASK_LIMIT_S = 5.0
"""How long a starting worker waits for a server."""
MAX_LIST_BYTES = 4 * 1024 * 1024
"""OpenRouter's list of some 400 models takes about 1 MiB."""
MAX_NAMES = 5
"""How many names of a list are shown to operators."""

_FIELDS = (
    "max_model_len",  # vLLM
    "context_length",  # OpenRouter
    "max_input_tokens",  # Anthropic
    "loaded_context_length",  # LM Studio: of a loaded model
    "max_context_length",  # LM Studio: of the model itself
)
_META_FIELDS = (
    "n_ctx",  # llama.cpp: of one slot
    "n_ctx_train",  # llama.cpp: of the model itself
)


async def read_list(response: httpx2.Response, name: str) -> Listed:
    """What a list of models says of a model. Raises ValueError, RecursionError."""
    return find_listed(await asyncio.to_thread(json.loads, response.content), name)


def build_list_failure(error: Exception) -> ModelFailed:
    """The failure for a list that could not be read."""
    # An SDK's own text says no more than "Connection error". The cause of a timeout is its cancellation.
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    return ModelFailed("The list of models can't be read.", provider_text=read_text(f"{type(cause).__name__}: {cause}"))


def find_listed(listed: object, name: str) -> Listed:
    """What a parsed list says of a model. If several context lengths are stated, the smallest one is in effect."""
    models = [_read_object(model) for model in _read_list(_read_object(listed).get("data"))]
    # llama.cpp answers with its only model, whatever name is requested.
    found = next((model for model in models if model.get("id") == name), models[0] if len(models) == 1 else {})
    meta = _read_object(found.get("meta"))
    stated = [*(found.get(field) for field in _FIELDS), *(meta.get(field) for field in _META_FIELDS)]
    tokens = min((tokens for value in stated if (tokens := try_read_count(value))), default=None)
    names = [known for model in models if (known := try_read_token(model.get("id")))]
    # Only llama.cpp sends `meta`. Ollama accepts a name without its tag.
    is_known = bool(meta) or name in names or f"{name}:latest" in names
    return Listed(tokens, "" if is_known else _describe_names(names))


def _describe_names(names: Sequence[str]) -> str:
    if not names:
        return "its server lists no models"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"its server does not list this name, only {', '.join(names[:MAX_NAMES])}{more}"


def _read_object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _read_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []

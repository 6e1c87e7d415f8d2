"""The converted model against a plain one that multiplies number by number, on small weights made up here."""

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everturn.memory.encoders.minilm_model import open_session
from everturn_local.settings import REPOSITORY

SPEC = importlib.util.spec_from_file_location("convert_minilm", REPOSITORY / "deploy" / "docker" / "convert_minilm.py")
assert SPEC is not None and SPEC.loader is not None
script: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

SIZE, WIDE, WORDS, PLACES, LAYERS = 24, 48, 30, 16, 2


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, SIZE),
        "embeddings.position_embeddings.weight": (PLACES, SIZE),
        "embeddings.token_type_embeddings.weight": (2, SIZE),
        "embeddings.LayerNorm.weight": (SIZE,),
        "embeddings.LayerNorm.bias": (SIZE,),
    }
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes |= {f"{name}.{part}.weight": (SIZE, SIZE), f"{name}.{part}.bias": (SIZE,)}
        shapes |= {f"{name}.intermediate.dense.weight": (WIDE, SIZE), f"{name}.intermediate.dense.bias": (WIDE,)}
        shapes |= {f"{name}.output.dense.weight": (SIZE, WIDE), f"{name}.output.dense.bias": (SIZE,)}
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{name}.{part}.weight": (SIZE,), f"{name}.{part}.bias": (SIZE,)}
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_the_model_gives_nearly_what_plain_arithmetic_gives(weights: dict[str, np.ndarray], tmp_path: Path) -> None:
    ids = [3, 17, 29, 4, 4, 11]
    (tmp_path / "model.onnx").write_bytes(script.build_model(weights).SerializeToString())
    session = open_session(tmp_path / "model.onnx")

    ((found,),) = session.run(None, {"ids": np.array([ids])})

    assert float(np.linalg.norm(found)) == pytest.approx(1.0, abs=1e-6)
    assert float(found @ np.array(encode_plainly(weights, ids))) > 0.995


def test_a_number_of_eight_bits_is_off_by_at_most_half_a_step() -> None:
    rows = np.random.default_rng(7).normal(size=(5, 40)).astype(np.float32)

    numbers, scales = script.quantize(rows)

    assert np.abs(numbers).max() == script.LARGEST
    assert (np.abs(numbers * scales[:, None] - rows) <= 0.501 * scales[:, None]).all()


def encode_plainly(weights: dict[str, np.ndarray], ids: Sequence[int]) -> list[float]:
    """The same net, written out in Python numbers."""
    table = {name: array.astype(float).tolist() for name, array in weights.items()}

    def dense(rows, name):
        matrix, bias = table[f"{name}.weight"], table[f"{name}.bias"]
        return [[sum(a * b for a, b in zip(row, out, strict=True)) + c for out, c in zip(matrix, bias, strict=True)]
                for row in rows]  # fmt: skip

    def norm(rows, name):
        scale, bias = table[f"{name}.weight"], table[f"{name}.bias"]
        return [_norm_row(row, scale, bias) for row in rows]

    def add(one, other):
        return [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(one, other, strict=True)]

    def attend(rows, name):
        query, key, value = (dense(rows, f"{name}.{part}") for part in ("query", "key", "value"))
        width = SIZE // script.HEADS
        out = [[0.0] * SIZE for _ in rows]
        for head in range(script.HEADS):
            part = range(head * width, (head + 1) * width)
            for i in range(len(rows)):
                scores = [sum(query[i][d] * key[j][d] for d in part) / math.sqrt(width) for j in range(len(rows))]
                total = sum(math.exp(score) for score in scores)
                for d in part:
                    out[i][d] = sum(math.exp(s) / total * value[j][d] for j, s in enumerate(scores))
        return out

    kinds = table["embeddings.token_type_embeddings.weight"][0]
    places = table["embeddings.position_embeddings.weight"]
    rows = [
        [a + b + c for a, b, c in zip(table["embeddings.word_embeddings.weight"][i], places[n], kinds, strict=True)]
        for n, i in enumerate(ids)
    ]
    rows = norm(rows, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        attended = dense(attend(rows, f"{name}.attention.self"), f"{name}.attention.output.dense")
        rows = norm(add(rows, attended), f"{name}.attention.output.LayerNorm")
        wide = [[v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in row]
                for row in dense(rows, f"{name}.intermediate.dense")]  # fmt: skip
        rows = norm(add(rows, dense(wide, f"{name}.output.dense")), f"{name}.output.LayerNorm")
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    length = math.sqrt(sum(value * value for value in mean))
    return [value / length for value in mean]


def _norm_row(row, scale, bias):
    mean = sum(row) / len(row)
    spread = math.sqrt(sum((value - mean) ** 2 for value in row) / len(row) + 1e-12)
    return [(value - mean) / spread * a + b for value, a, b in zip(row, scale, bias, strict=True)]

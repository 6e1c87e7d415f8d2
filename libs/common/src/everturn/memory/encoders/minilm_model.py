"""The model of the local encoder, as `convert_minilm.py` writes it, in ONNX Runtime. Imported in its process only."""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from everturn.memory.embedder import Vector
from everturn.memory.encoders.opening import MINILM_FOLDER

MAX_TOKENS = 256
"""The length that the model was trained for; the rest of a text is ignored."""
CPU_FLAGS = Path("/proc/cpuinfo")


class MiniLm:
    """A tokenizer and its encoder."""

    def __init__(self, tokenizer: Tokenizer, session: Any) -> None:
        self._tokenizer = tokenizer
        self._session = session

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text. Texts are encoded one by one: padded to the longest of a batch, a short message
        would cost as much as the long answer beside it."""
        # A lone surrogate, which a JSON escape can produce, has no encoding.
        cleaned = [text.encode(errors="replace").decode() for text in texts]
        # At least the two special tokens around each text.
        return [self._encode_tokens(found.ids) for found in self._tokenizer.encode_batch(cleaned)]

    def _encode_tokens(self, ids: Sequence[int]) -> Vector:
        ((vector,),) = self._session.run(None, {"ids": np.array([ids], dtype=np.int64)})
        return tuple(vector.tolist())


def load_minilm(folder: Path = MINILM_FOLDER) -> MiniLm:
    """Read some 25 MB."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)  # pyright: ignore[reportUnknownMemberType] its stub has an untyped **kwargs
    return MiniLm(tokenizer, open_session(folder / "model.onnx"))


def open_session(model: Path) -> Any:
    """With no thread of its own, so that the process can be forked."""
    # Otherwise a thread reports to the maker of the library, and a file remembers what could not be reported.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    onnxruntime: Any = import_module("onnxruntime")  # its types are incomplete
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if "vnni" not in CPU_FLAGS.read_text():
        # The fastest kernels for older processors overflow; these take half as long again.
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

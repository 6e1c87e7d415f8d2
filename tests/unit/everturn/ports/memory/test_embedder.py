"""The encoders take the calls that are written for the port."""

import pytest

from everturn.embeddings.hashed import HashedEmbedder
from everturn.embeddings.minilm import MiniLmEmbedder
from everturn.embeddings.openai import OpenAIEmbedder
from everturn.ports.memory.embedder import Embedder
from everturn.testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [HashedEmbedder, MiniLmEmbedder, OpenAIEmbedder])
def test_an_encoder_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Embedder, driver) == []

"""The encoders take the calls that are written for the port."""

import pytest

from everturn.memory.embedder import Embedder
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.encoders.minilm import MiniLmEmbedder
from everturn.memory.encoders.openai import OpenAIEmbedder
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [HashedEmbedder, MiniLmEmbedder, OpenAIEmbedder])
def test_an_encoder_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Embedder, driver) == []

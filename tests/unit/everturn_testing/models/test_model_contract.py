"""The contract of LanguageModel holds for the models of our tests; a model that breaks it is noticed."""

from collections.abc import AsyncGenerator

import pytest

from everturn.models.port import ModelPiece, ModelRequest, ReplyFinished
from everturn_testing.models.model_contract import LanguageModelContract, build_request, collect_pieces
from everturn_testing.models.scripted_model import (
    SCRIPTED_TRAITS,
    SCRIPTED_USAGE,
    Finish,
    Pause,
    Say,
    ScriptedModel,
    Think,
)


class TestScriptedModel(LanguageModelContract):
    @pytest.fixture
    def model(self) -> ScriptedModel:
        return ScriptedModel([[Think("hm"), Say("Hello, world. How are you?"), Pause(0), Finish()]] * 2, chunk_chars=4)


class TwiceFinished:
    traits = SCRIPTED_TRAITS

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        yield ReplyFinished("stop", SCRIPTED_USAGE)
        yield ReplyFinished("stop", SCRIPTED_USAGE)


async def test_a_model_that_finishes_twice_breaks_the_contract() -> None:
    contract = LanguageModelContract()

    with pytest.raises(AssertionError):
        await contract.test_a_reply_ends_with_exactly_one_finish(TwiceFinished())


async def test_pieces_are_collected_in_order() -> None:
    pieces = await collect_pieces(ScriptedModel(["ab"], chunk_chars=1), build_request())

    assert [getattr(piece, "text", "") for piece in pieces] == ["a", "b", ""]

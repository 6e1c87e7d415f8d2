"""The offline model is a LanguageModel like the others: streamed, deterministic, paced when asked to be."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_proc.models.offline.model import OfflineModel, build_model
from everturn.models.port import ReplyFinished
from everturn_testing.models.model_contract import LanguageModelContract, build_request, collect_pieces, join_text

if TYPE_CHECKING:
    from tests.unit.chat_proc.models.offline.conftest import PromptBuilder


class TestContract(LanguageModelContract):
    @pytest.fixture
    def model(self) -> OfflineModel:
        return build_model()


async def test_the_same_prompt_gets_the_same_reply(prompt: "PromptBuilder") -> None:
    request = prompt.turn("turn_1", "Total?").attach("a.csv").build()

    first, second = [await collect_pieces(build_model(), request) for _ in range(2)]

    assert first == second
    assert "<channel:code>" in join_text(first)


async def test_the_usage_is_estimated_and_free() -> None:
    finish = (await collect_pieces(build_model(), build_request()))[-1]

    assert isinstance(finish, ReplyFinished)
    assert finish.usage.estimated
    assert finish.usage.cost_usd == 0.0


async def test_a_paced_reply_waits_after_each_piece() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    pieces = await collect_pieces(OfflineModel(chunk_chars=20, piece_delay_s=0.03, sleep=sleep), build_request())

    assert waits == [0.03] * (len(pieces) - 1)
    assert all(len(piece.text) <= 20 for piece in pieces if not isinstance(piece, ReplyFinished))


@settings(deadline=None)  # the first example loads data files
@given(st.text())
async def test_every_prompt_gets_a_whole_reply(text: str) -> None:
    request = build_request(f"[TURN turn_1]\n[user.prompt ar:turn_1.user.prompt]\n{text}\n[ANNOUNCE]\nIteration 1/15")

    reply = join_text(await collect_pieces(OfflineModel(chunk_chars=500), request))

    assert reply.startswith(("<channel:thinking>", "<channel:action>"))
    assert '"action": "' in reply


def test_there_is_only_one_offline_model() -> None:
    with pytest.raises(ValueError, match="only one"):
        build_model("large")

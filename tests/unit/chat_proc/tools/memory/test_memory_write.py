"""`memory.write` over memories in memory."""

import pytest
from pydantic import ValidationError

from chat_proc.tools.memory.user_memories import MemoryWriteParams, MemoryWriteTool
from everturn.core.errors import Conflict, Unavailable
from everturn.memory.encoders.hashed import HashedEmbedder
from everturn.memory.user_memories import make_memory_id
from everturn.turns.model import Effect
from everturn_testing.memory.user_memories import MemoryUserMemories


@pytest.fixture
def memories() -> MemoryUserMemories:
    return MemoryUserMemories()


@pytest.fixture
def tool(memories: MemoryUserMemories) -> MemoryWriteTool:
    return MemoryWriteTool(memories, HashedEmbedder())


async def kept(desk, memories):
    return {memory.text: memory for memory in await memories.load_hotset(desk.harness.principal, 99)}


async def test_the_same_written_twice_is_one_memory(desk, call, tool, memories) -> None:
    first = await call(tool, {"text": "Prefers metric units.", "labels": ["preference", "preference "], "pinned": True})
    again = await call(tool, {"text": "prefers  metric units."})

    assert first.data == again.data == {"memory_id": make_memory_id("prefers metric units.")}
    (memory,) = (await kept(desk, memories)).values()
    assert (memory.labels, memory.pinned) == (("preference",), True)
    assert tool.spec.effect is Effect.IDEMPOTENT


async def test_a_changed_memory_keeps_fields_that_are_not_given(desk, call, tool, memories) -> None:
    first = await call(tool, {"text": "Prefers metric units.", "salience": 0.9})

    await call(tool, {"memory_id": first.data["memory_id"], "text": "Prefers SI units."})

    found = await kept(desk, memories)
    assert list(found) == ["Prefers SI units."]
    assert found["Prefers SI units."].salience == 0.9


@pytest.mark.parametrize("way", ["flag", "empty text", "text"])
async def test_a_memory_is_forgotten_by_flag_or_by_an_empty_text(desk, call, tool, memories, way) -> None:
    first = await call(tool, {"text": "Works at Acme."})
    memory_id = first.data["memory_id"]
    params = {
        "flag": {"memory_id": memory_id, "forget": True},
        "empty text": {"memory_id": memory_id, "text": " "},
        "text": {"text": "works at acme.", "forget": True},
    }[way]

    forgotten, again = await call(tool, params), await call(tool, params)

    assert (forgotten.status, again.status) == ("ok", "ok")
    assert "so nothing was deleted" in again.text
    assert await kept(desk, memories) == {}


@pytest.mark.parametrize("error", [Conflict("full."), Unavailable("down")])
async def test_a_failed_save_is_reported_to_the_model(call, tool, memories, error) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise error

    memories.save = refuse

    outcome = await call(tool, {"text": "x"})

    assert outcome.status == "error"
    assert "Nothing was saved" in outcome.text


async def test_what_the_person_erased_meanwhile_is_not_written_again(desk, call, tool, memories) -> None:
    first = await call(tool, {"text": "Works at Acme."})
    await memories.erase(desk.harness.principal, first.data["memory_id"])

    outcome = await call(tool, {"text": "Works at Acme."})

    assert outcome.status == "error"
    assert "has just deleted this memory" in outcome.text
    assert await kept(desk, memories) == {}


@pytest.mark.parametrize("params", [{}, {"text": " "}, {"text": "x", "labels": [""]}, {"text": "x" * 1_001}])
def test_what_does_not_fit_is_refused(params) -> None:
    with pytest.raises(ValidationError):
        MemoryWriteParams.model_validate(params)

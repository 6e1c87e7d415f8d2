"""What the model sees of a timeline."""

from chat_proc.timeline.projection import project_blocks
from everturn.model.block_bodies import ExitBody, TitleBody
from everturn.model.blocks import BlockType
from everturn.model.turns import Outcome, TurnUsage
from everturn.testing.timelines import TimelineBuilder


def test_what_only_clients_need_is_not_shown() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello")
    timeline.add(BlockType.STAGE_GATE, "ar:turn_1.round.0.title", TitleBody(title="Hello"))
    timeline.start_round()
    timeline.answer("Hi")
    leave = ExitBody(outcome=Outcome.COMPLETED, rounds=1, usage=TurnUsage(), elapsed_ms=1)
    timeline.add(BlockType.EXIT, "ar:turn_1.round.1.exit", leave)

    shown = [block.type.value for block in project_blocks(timeline.blocks)]

    assert shown == ["turn.header", "user.prompt", "assistant.completion"]

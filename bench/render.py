"""P13: what rendering a round costs in a turn of 800 rounds against one of 50, each with the blocks of a usual round.

Needs nothing running.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

from helpers.goals import Goal, build_goal, run_goals

from chat_proc.agent.prompting import AnnounceState, Budget, ContextCaps, build_announce, build_source_pool
from chat_proc.timeline.present import Present
from chat_proc.timeline.view import PromptRenderer
from everturn.models.port import ModelTraits
from everturn.models.tokens import CharsPerToken
from everturn.timeline.blocks import Block
from everturn.timeline.sources import Source
from everturn_testing.timeline import NOW, TimelineBuilder

SHORT, LONG = 50, 800
MEASURED_ROUNDS = 40
REPEATS = 5
MAX_RATIO = 1.5
RESULT = "The totals by region differ less than expected; north leads, south follows. " * 40
TRAITS = ModelTraits(name="bench", context_tokens=200_000, images=True, documents=True)
POOL = [Source(n, f"Page {n}", f"https://example.com/{n}", text=RESULT[:200], text_chars=9_000) for n in range(1, 41)]


def measure() -> list[Goal]:
    short, long = measure_turn(SHORT), measure_turn(LONG)
    return [
        build_goal("P13 ms to render a round of an 800-round turn", long[0], short[0], MAX_RATIO),
        build_goal("texts rendered in a round of an 800-round turn", long[1], short[1], MAX_RATIO),
    ]


def measure_turn(rounds: int) -> tuple[float, float]:
    """Milliseconds and texts of one round, over the last rounds of a turn of so many."""
    blocks = play(rounds)
    starts = [at for at, block in enumerate(blocks) if block.type.value == "react.round.start"]
    times, texts = zip(*(measure_once(blocks, starts) for _ in range(REPEATS)), strict=True)
    return min(times), statistics.median(texts)


def measure_once(blocks: Sequence[Block], starts: Sequence[int]) -> tuple[float, float]:
    renderer, present = PromptRenderer(system_prompt="You are the agent.", traits=TRAITS), Present()
    first = starts[-MEASURED_ROUNDS]
    render_round(renderer, present, blocks[:first])
    texts = renderer.view.texts_built
    spent: list[float] = []
    for begin, end in zip(starts[-MEASURED_ROUNDS:], [*starts[-MEASURED_ROUNDS + 1 :], len(blocks)], strict=True):
        spent.append(timed(lambda news: render_round(renderer, present, news), blocks[begin:end]))
    return statistics.median(spent) * 1_000, (renderer.view.texts_built - texts) / MEASURED_ROUNDS


def timed(run: Callable[[Sequence[Block]], None], news: Sequence[Block]) -> float:
    began = time.perf_counter()
    run(news)
    return time.perf_counter() - began


def render_round(renderer: PromptRenderer, present: Present, news: Sequence[Block]) -> None:
    """All that a request of a round takes: the view, the present, SOURCES POOL, ANNOUNCE, the messages."""
    renderer.take(news)
    present.extend(news)
    announce = build_announce(
        AnnounceState(
            turn_id=present.turn_id,
            budget=Budget(1, LONG, 1.0, 1800, 1, 10**9, 0.0, 10.0),
            code="programs run in a sandbox",
            now=NOW,
            caps=ContextCaps(renderer.tokens(CharsPerToken()), 10**9),
            plans=present.open_plans,
            events=tuple(present.events),
            notices=renderer.view.visibility.notices(present.turn_id),
        )
    )
    renderer.render([build_source_pool(POOL), announce], {})


def play(rounds: int) -> list[Block]:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Find out what there is to know.")
    for number in range(rounds):
        timeline.start_round()
        timeline.think(RESULT[:300])
        timeline.call(f"call_{number}", "react.read", {"paths": [f"fi:turn_1.files/{number}.txt"]})
        timeline.result(f"call_{number}", "react.read", RESULT)
    return timeline.blocks


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure))

"""Where a request asks the provider to cache: after the system text, and at up to three places of the timeline."""

from collections.abc import Sequence

from everturn.model.blocks import Block

PRE_TAIL_ROUNDS = 4
"""How far behind the tail the second point lies: a change of the last rounds then still hits the cache before them."""
MIN_ROUNDS = 2


def choose_cache_points(visible: Sequence[Block]) -> frozenset[int]:
    """The seqs of the blocks after which to cache: end of the previous turn, pre-tail, tail. Never more than three."""
    if not visible:
        return frozenset()
    tail = visible[-1]
    before = next((block.seq for block in reversed(visible) if block.turn_id != tail.turn_id), None)
    ends: dict[int, int] = {}
    for block in visible:
        if block.turn_id == tail.turn_id and block.round > 0:
            ends[block.round] = block.seq
    points = {tail.seq} if before is None else {before, tail.seq}
    if len(ends) >= MIN_ROUNDS:
        points.add(list(ends.values())[max(0, len(ends) - 1 - PRE_TAIL_ROUNDS)])
    return frozenset(points)

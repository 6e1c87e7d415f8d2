"""Invariants of an idle conversation, whatever happened to the machines it ran on."""

from collections.abc import Sequence

from everturn.core.identity import Principal
from everturn.events.cursor import try_parse_cursor
from everturn.events.fold import is_open
from everturn.events.model import ChatComplete, ChatError, Envelope, StreamSnapshot
from everturn.events.views import StateView
from everturn.postgres.pool import open_database
from everturn.timeline.blocks import ExitBody
from everturn.turns.postgres_rows import BLOCK_COLUMNS, read_block
from everturn_local.servers.databases import DATABASE, DatabaseUrls
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_testing.states import comparable_state
from everturn_testing.timeline import first_broken_link

_LEDGER = """
SELECT t.id || ': the turn says ' || t.usage || ', its calls '
       || COALESCE(sum(u.input_tokens), 0) || ' and ' || COALESCE(sum(u.output_tokens), 0)
  FROM turn t LEFT JOIN usage_event u ON u.turn_id = t.id
 WHERE t.conversation_id = '{conversation_id}' AND t.usage IS NOT NULL
 GROUP BY t.id
HAVING (t.usage::json ->> 'input_tokens')::bigint <> COALESCE(sum(u.input_tokens), 0)
    OR (t.usage::json ->> 'output_tokens')::bigint <> COALESCE(sum(u.output_tokens), 0)
"""

_OWNED = ("turn", "block", "signal", "artifact", "source", "tool_effect", "usage_event", "snippet", "lease", "approval")
_FOREIGN = " UNION ALL ".join(
    f"""SELECT DISTINCT '{table} of ' || o.tenant || '/' || o.project || '/' || o.user_id
    FROM {table} o JOIN conversation c ON c.id = o.conversation_id
    WHERE c.id = '{{conversation_id}}' AND (o.tenant, o.project, o.user_id) <> (c.tenant, c.project, c.user_id)"""
    for table in _OWNED
)
_REPEATED = """
SELECT e.tool_id || ' ' || e.call_id || ' is ' || e.state || ', with ' || string_agg(b.body::json ->> 'status', ', ')
  FROM tool_effect e JOIN block b ON b.conversation_id = e.conversation_id AND b.turn_id = e.turn_id
   AND b.call_id = e.call_id AND b.type = 'react.tool.result'
 WHERE e.conversation_id = '{conversation_id}' AND e.effect = 'irreversible'
 GROUP BY e.turn_id, e.call_id, e.tool_id, e.state
HAVING count(*) > 1 OR (e.state = 'committed') <> bool_or(b.body::json ->> 'status' = 'ok')
"""


_BLOCKS = f"SELECT {BLOCK_COLUMNS} FROM block WHERE conversation_id = $1 ORDER BY seq"


def check_state(state: StateView, *, parked: bool = False) -> None:
    """I1: nothing is open any more, and no signal of an ended turn still waits for an answer.

    A `parked` conversation rests too: its last turn, and no other, waits for a person who was asked something.
    """
    still_open = [turn for turn in state.turns if is_open(turn)]
    if parked:
        assert state.conversation.state == "waiting"
        assert [turn.turn_id for turn in still_open] == [state.turns[-1].turn_id]
        assert still_open[0].status == "waiting"
        assert [each for each in still_open[0].approvals if each.state == "pending"], "nobody is asked anything"
    else:
        assert state.conversation.state in ("idle", "error")
        assert [turn.turn_id for turn in still_open] == []
    waiting = [s.signal_id for turn in state.turns for s in turn.signals if s.state == "accepted" and s.kind != "event"]
    assert waiting == []


async def check_blocks(database: DatabaseUrls, tenant: str, conversation_id: str, state: StateView) -> None:
    """I2: no hole, no double, one end per ended turn and nothing of it after that; the chain of hashes holds."""
    principal = Principal(tenant, "default", "dev")
    async with (
        open_database(database.worker, pool_size=1, application_name="checker") as opened,
        opened.transaction(principal, readonly=True) as transaction,
    ):
        blocks = [read_block(row) for row in await transaction.fetch(_BLOCKS, conversation_id)]
    assert [block.seq for block in blocks] == list(range(1, len(blocks) + 1))
    assert first_broken_link(blocks) is None
    for turn in state.turns:
        own = [block for block in blocks if block.turn_id == turn.turn_id]
        ends = [isinstance(block.body, ExitBody) for block in own]
        assert ends.count(True) == (0 if is_open(turn) else 1)
        assert ends[-1] is not is_open(turn)


def check_rows(postgres: EmbeddedPostgres, conversation_id: str) -> None:
    """I4 to I6: an irreversible call has one result, which says of it what the effect ledger says; all rows belong to
    who owns the conversation; what a turn says it has used is the sum of its model calls. In one question: psql takes
    long to start."""
    wrong = " UNION ALL ".join(f"({query})" for query in (_REPEATED, _FOREIGN, _LEDGER))
    assert postgres.run_sql(wrong.format(conversation_id=conversation_id), database=DATABASE) == ""


def check_seen(seen: Sequence[Envelope], folded: StateView | None, truth: StateView) -> None:
    """I3 and I5: what a client has seen is of this conversation and folds to the truth; every turn ended once.

    A snapshot replaces a client's state, so it can be followed by an end that it already contains.
    """
    assert folded is not None
    assert {envelope.conversation_id for envelope in seen} <= {truth.conversation.conversation_id}
    found = differences(comparable_state(folded).model_dump(), comparable_state(truth).model_dump())
    assert not found, "\n".join(found)
    for run in runs_of(seen):
        ids = [cursor for envelope in run if envelope.id and (cursor := try_parse_cursor(envelope.id))]
        assert ids == sorted(set(ids))
        ends = [envelope.turn_id for envelope in run if isinstance(envelope.data, ChatComplete | ChatError)]
        assert len(ends) == len(set(ends)), f"published twice: {ends}"


def runs_of(seen: Sequence[Envelope]) -> list[list[Envelope]]:
    """What came between two snapshots."""
    runs: list[list[Envelope]] = [[]]
    for envelope in seen:
        if isinstance(envelope.data, StreamSnapshot):
            runs.append([])
        runs[-1].append(envelope)
    return runs


def differences(seen: object, truth: object, place: str = "") -> list[str]:
    """Where two dumps differ, in words."""
    if isinstance(seen, dict) and isinstance(truth, dict):
        return [d for key in truth for d in differences(seen.get(key), truth[key], f"{place}.{key}")]
    if isinstance(seen, list | tuple) and isinstance(truth, list | tuple) and len(seen) == len(truth):
        return [d for n, pair in enumerate(zip(seen, truth, strict=True)) for d in differences(*pair, f"{place}[{n}]")]
    return [] if seen == truth else [f"{place}: seen {seen!r}, but it is {truth!r}"]

"""The blocks of a turn that hold what was said in it, without tool calls, results and thinking."""

from everturn.model.blocks import Block, BlockType
from everturn.model.ids import ConversationId, TurnId
from everturn.ports.memory.index import MAX_INDEXED_BYTES
from everturn.postgres.database import Connection
from everturn.postgres.rows import read_block

TEXT_TYPES = (
    BlockType.USER_PROMPT,
    BlockType.ATTACHMENT_META,
    BlockType.USER_FOLLOWUP,
    BlockType.USER_STEER,
    BlockType.EXTERNAL_EVENT,
    BlockType.ANCHOR,
    BlockType.COMPLETION,
    BlockType.WORKING_SUMMARY,
)

# By seq, which the primary key finds: from where the turn begins to where the next one that began does.
_BLOCKS = """
SELECT seq, turn_id, round, type, ref, call_id, body, ts, ts_first, hash
  FROM (SELECT b.*, COALESCE(sum(octet_length(b.body))
                             OVER (ORDER BY b.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
          FROM block b, turn t
         WHERE t.id = $2 AND t.conversation_id = $1 AND b.conversation_id = $1 AND b.turn_id = $2
           AND b.type = ANY ($3) AND b.seq >= t.first_seq
           AND b.seq < COALESCE((SELECT n.first_seq FROM turn n
                                  WHERE n.conversation_id = $1 AND n.ordinal > t.ordinal AND n.first_seq IS NOT NULL
                                  ORDER BY n.ordinal LIMIT 1), 9223372036854775807)) AS said
 WHERE bytes_before < $4 ORDER BY seq
"""


async def load_text_blocks(
    transaction: Connection, conversation_id: ConversationId, turn_id: TurnId
) -> tuple[Block, ...]:
    """In order, until their bodies have MAX_INDEXED_BYTES together; the transaction names the principal."""
    types = [kind.value for kind in TEXT_TYPES]
    rows = await transaction.fetch(_BLOCKS, conversation_id, turn_id, types, MAX_INDEXED_BYTES)
    return tuple(map(read_block, rows))

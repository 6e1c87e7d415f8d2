"""Approvals: a call that a person is asked about before it is made, and what became of the question."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everturn.core.ids import ApprovalId, CallId, SignalId
from everturn.core.open_values import OpenEnum


class ApprovalState(OpenEnum):
    """PENDING may become any of the others, and those are final. EXPIRED had no answer in time; WITHDRAWN is asked no
    more, because the person said something else or the turn ended."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"

    @classmethod
    def stand_in(cls) -> "ApprovalState":
        """A call is made only after an answer that this version understands."""
        return cls.WITHDRAWN


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A person is asked. `args_hash` is over the tool and its parameters, which are all that the answer is about."""

    id: ApprovalId
    call_id: CallId
    tool_id: str
    args_hash: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """Where a question stands in the database; `signal_id` and `reason` are those of a person's answer."""

    id: ApprovalId
    call_id: CallId
    args_hash: str
    state: ApprovalState
    signal_id: SignalId | None = None
    reason: str = ""


def approval_id_of(call_id: CallId) -> ApprovalId:
    """The one approval that a call may need: whoever asks again asks the same."""
    return ApprovalId(f"appr_{call_id.partition('_')[2]}")


def hash_arguments(tool_id: str, params: dict[str, Any]) -> str:
    """SHA-256 in hex over the tool and its canonical parameters."""
    canonical = json.dumps([tool_id, params], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()

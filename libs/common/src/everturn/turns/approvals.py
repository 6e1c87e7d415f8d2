"""Approvals: the question to a person before a tool call is made, and its answer."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everturn.core.ids import ApprovalId, CallId, SignalId
from everturn.core.open_values import OpenEnum


class ApprovalState(OpenEnum):
    """PENDING can become any of the others, and those are final. EXPIRED had no answer in time. WITHDRAWN is no longer
    asked, because the person sent something else or the turn ended."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"

    @classmethod
    def fallback(cls) -> "ApprovalState":
        """A call is made only after an answer that this version understands."""
        return cls.WITHDRAWN


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to a person. `args_hash` covers the tool and its parameters; the answer applies to exactly these."""

    id: ApprovalId
    call_id: CallId
    tool_id: str
    args_hash: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """The stored state of a question; `signal_id` and `reason` are those of the person's answer."""

    id: ApprovalId
    call_id: CallId
    args_hash: str
    state: ApprovalState
    signal_id: SignalId | None = None
    reason: str = ""


def approval_id_of(call_id: CallId) -> ApprovalId:
    """The only approval that a call can need, so asking again reuses the same one."""
    return ApprovalId(f"appr_{call_id.partition('_')[2]}")


def hash_arguments(tool_id: str, params: dict[str, Any]) -> str:
    """SHA-256 in hex over the tool and its canonical parameters."""
    canonical = json.dumps([tool_id, params], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()

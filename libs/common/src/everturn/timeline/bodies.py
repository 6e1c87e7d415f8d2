"""The typed bodies of timeline blocks: one small class for each thing that can happen in a turn."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from everturn.core.errors import Problem
from everturn.core.ids import ApprovalId, SignalId
from everturn.files.model import Artifact
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.sources import Citation
from everturn.timeline.turns import CutReason, Outcome, TurnUsage


class Body(BaseModel):
    """What all bodies share: frozen, and nothing unknown inside."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class UnknownBody(Body):
    """A body that only a newer version can read; its bytes stay in the block."""


class TurnHeaderBody(Body):
    """The turn begins. `ordinal` counts from 1 in the conversation."""

    ordinal: int
    bundle_id: str | None = None


class PromptBody(Body):
    """What the person wrote, verbatim."""

    text: str


class AttachmentBody(Body):
    """A file the person attached; its bytes are in the object store."""

    artifact: Artifact


class AttachmentTextBody(Body):
    """The beginning of a text attachment, for the model. `total_chars` counts the whole file, None if unknown."""

    filename: str
    text: str
    total_chars: int | None


class SignalBody(Body):
    """A followup or a steer, as folded into the turn."""

    signal_id: SignalId
    text: str
    attachments: tuple[Artifact, ...] = ()


class EventBody(Body):
    """Something that happened outside, such as a form sent off or an alert; `kind` is its sort.

    A `reactive` event asks the model to do something about it; another one is only recorded. `credit` are the rounds
    that it adds to its turn.
    """

    signal_id: SignalId
    kind: str
    text: str
    payload: dict[str, Any] = {}
    reactive: bool = True
    credit: int = 0
    attachments: tuple[Artifact, ...] = ()


class RoundStartBody(Body):
    """A round begins; `limit` is the number of rounds the turn may have at this moment."""

    limit: int


class ThinkingBody(Body):
    """What the model thought aloud. `instance` tells repeated thinking channels of one round apart."""

    text: str
    instance: int = 0


class NotesBody(Body):
    """The notes of an action."""

    text: str


class NoticeBody(Body):
    """Something the runtime tells the model, such as what to mend in its last reply."""

    code: str
    text: str


class RawDecisionBody(Body):
    """A reply that could not be used, as it came."""

    text: str
    code: str


class ToolCallBody(Body):
    """A tool is called. `shown` is what clients saw of a written text where citations were replaced in it.

    A call that a program made has the call of its run as `parent`; the run's result tells the model of it.
    """

    tool_id: str
    params: dict[str, Any]
    shown: str | None = None
    parent: str | None = None


class ToolCodeBody(Body):
    """The program of a call, verbatim."""

    text: str


class StoredText(BaseModel):
    """A long text in the object store, as UTF-8. `sha256` in hex is over its `bytes`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    object_key: str
    sha256: str
    chars: int
    bytes: int


class ToolResultBody(Body):
    """What a call gave. `text` is what the model reads; `ambiguous` means nobody knows whether it took effect.

    Where `whole` is set, `text` is a preview of it. `untrusted` marks words of strangers; `parent` is as in the call.
    """

    tool_id: str
    status: Literal["ok", "error", "ambiguous", "cancelled"]
    text: str
    artifacts: tuple[Artifact, ...] = ()
    data: dict[str, Any] | None = None
    duration_ms: int = 0
    whole: StoredText | None = None
    untrusted: bool = False
    parent: str | None = None


class ApprovalRequestBody(Body):
    """A person is asked before the call is made. `params` are what they are shown, without secrets; `cut` says that it
    is not all of them. `args_hash` is over the tool and the exact parameters. `expires_at` is by the database's clock.
    `explanation` tells that person why; `addresses` are the web addresses that are asked about, in canonical form.
    """

    approval_id: ApprovalId
    tool_id: str
    params: dict[str, Any]
    args_hash: str
    expires_at: str
    cut: bool = False
    explanation: str = ""
    addresses: tuple[str, ...] = ()


class ApprovalOutcomeBody(Body):
    """What became of the question. `signal_id` and `reason` are those of a person's answer."""

    approval_id: ApprovalId
    state: Literal["approved", "denied", "expired", "withdrawn"]
    reason: str = ""
    signal_id: SignalId | None = None


class PlanBody(Body):
    """A snapshot of a plan after a change."""

    plan: PlanSnapshot


class PlanAckBody(Body):
    """Step marks from notes, as a person reads them."""

    plan_id: str
    text: str


class CompletionBody(Body):
    """An answer. `text` is the model's, `shown` what clients saw where it differs; `instance` as in the deltas.

    `sources_used` are the numbers it cites, `citations` the sources as they were then.
    """

    text: str
    shown: str | None = None
    instance: int = 0
    followups: tuple[str, ...] = ()
    sources_used: tuple[int, ...] = ()
    citations: tuple[Citation, ...] = ()


class AttemptBody(Body):
    """An answer that is not the turn's, with the reason: it was broken off, or it waits for the calls beside it."""

    text: str
    shown: str | None = None
    instance: int = 0
    reason: str
    followups: tuple[str, ...] = ()
    sources_used: tuple[int, ...] = ()
    cut_reason: CutReason | None = None


class SummaryBody(Body):
    """The working summary of a turn, hidden from the person."""

    text: str


class DeferralBody(Body):
    """Why the answer before it does not end the turn, and what to do now."""

    reason: str
    text: str


class AnchorBody(Body):
    """An internal memory anchor: a short line the model leaves for later turns. `tags` are of P, D, S, A, K."""

    text: str
    tags: tuple[str, ...] = ()
    path: str | None = None


class HideBody(Body):
    """Blocks with one of `refs` and a `seq` up to `through_seq` are shown as `replacement` from here on."""

    refs: tuple[str, ...]
    through_seq: int
    replacement: str


class CheckoutBody(Body):
    """What the editable workspace of the turn took over. `artifacts` are the copies, `sources` the refs they are of,
    one for each. `removed` says of each file that a replacing checkout took out of the workspace that it is gone."""

    mode: Literal["replace", "overlay"]
    sources: tuple[str, ...]
    artifacts: tuple[Artifact, ...]
    removed: tuple[Artifact, ...] = ()


class PlanHistoryBody(Body):
    """The newest snapshots of plans whose own blocks are no longer shown, the current one among them.

    The plan that changed last is last. A plan's own block outside the summarized range outweighs what stands here.
    """

    plans: tuple[PlanSnapshot, ...]


class KeptText(BaseModel):
    """A text that outlives the blocks it came from: an anchor, a signal, an event. `kind` is its block type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str
    kind: str
    text: str


class RangeSummaryBody(Body):
    """Blocks `first_seq` to `last_seq`, told in short. What it keeps is there so that no later reader needs them.

    `history` covers whole ended turns; `turn` covers the beginning of the turn it stands in. A later one of the same
    scope covers the earlier one too. `turn_ids` are those of the range that no earlier summary named in `kept` lists.
    `by` says whether a model wrote the text or rules did. Tokens are estimates of the whole request, before and after.
    """

    scope: Literal["history", "turn"]
    first_seq: int
    last_seq: int
    turn_ids: tuple[str, ...]
    text: str
    kept: tuple[KeptText, ...] = ()
    before_tokens: int
    after_tokens: int
    by: Literal["model", "rules"]


class SystemMessageBody(Body):
    """The runtime changed what the model sees. `cache_ttl_pruned`: turns that begin before `recent_from_seq` are shown
    as cards or rows, those before `intact_from_seq` without their bulky results."""

    kind: Literal["cache_ttl_pruned"]
    text: str
    recent_from_seq: int
    intact_from_seq: int


class TitleBody(Body):
    """The conversation got its title."""

    title: str


class FeedbackBody(Body):
    """A person's or a program's judgement of an earlier turn, shown to the model at the next turn's start."""

    turn_id: str
    origin: Literal["user", "machine"]
    reaction: str | None
    text: str


class ExitBody(Body):
    """The terminal block of a turn. Exactly one of `outcome` and `error` is set.

    `cut_reason` is set when the answer stops before its end: with the outcome `cut`, and perhaps with `capped`.
    """

    outcome: Outcome | None = None
    cut_reason: CutReason | None = None
    error: Problem | None = None
    rounds: int
    usage: TurnUsage
    elapsed_ms: int

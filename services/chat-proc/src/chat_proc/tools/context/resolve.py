"""Finds what a ref names in a conversation: a text of the timeline, or a stored file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chat_proc.timeline.block_text import block_source
from chat_proc.timeline.files import fold_artifacts
from chat_proc.timeline.plans import latest_plans
from chat_proc.timeline.projection import is_shown_whole
from everturn.errors import Invalid
from everturn.model import refs
from everturn.model.artifacts import Artifact
from everturn.model.block_bodies import PlanBody
from everturn.model.blocks import Block, BlockType
from everturn.model.ids import ConversationId, TurnId

_FILE_BLOCKS = (BlockType.ATTACHMENT_META, BlockType.ATTACHMENT_TEXT)


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text of the timeline. `shown_whole` means that the model has it before it already."""

    ref: str
    text: str
    shown_whole: bool


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A stored file."""

    ref: str
    artifact: Artifact


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing is there, and why."""

    reason: str


Found = FoundText | FoundFile | Missing


class Resolver:
    """Answers for one conversation as it stands at one call."""

    def __init__(self, blocks: Sequence[Block], conversation_id: ConversationId, turn_id: TurnId) -> None:
        self._blocks = blocks
        self._conversation_id = conversation_id
        self._turn_id = turn_id
        self._files = fold_artifacts(blocks)
        self._by_path = {artifact.path: artifact for artifact in self._files.values()}

    def find(self, text: str) -> Found:
        """What `text` names: a ref, or the path of a file as programs see it."""
        by_path = self._by_path.get(text) or self._by_path.get(f"{self._turn_id}/{text}")
        if by_path is not None:
            return FoundFile(by_path.ref, by_path)
        try:
            ref = refs.parse_ref(text)
        except Invalid as invalid:
            return Missing(invalid.detail)
        if isinstance(ref, refs.KnowledgeRef | refs.SkillRef):
            return Missing("there are no knowledge documents and no skills here")
        if ref.conversation == self._conversation_id:
            ref = replace(ref, conversation=None)
        if ref.conversation is not None:
            return Missing("it belongs to another conversation, which can't be read from here")
        return self._find_own(ref)

    def _find_own(self, ref: refs.Ref) -> Found:
        match ref:
            case (
                refs.FileRef() | refs.OutputRef() | refs.AttachmentRef() | refs.ExternalAttachmentRef() | refs.LogRef()
            ):
                artifact = self._files.get(str(ref))
                return FoundFile(str(ref), artifact) if artifact else Missing("there is no such file")
            case refs.PlanLatestRef(plan=plan):
                snapshots = [
                    snapshot.snapshot_ref for snapshot in latest_plans(self._blocks) if snapshot.plan_id == plan
                ]
                return self._find_plan(str(ref), snapshots[0]) if snapshots else Missing("there is no such plan")
            case refs.CompletionRef(turn=turn, n=None):
                answers = (b for b in reversed(self._blocks) if b.turn_id == turn and b.type is BlockType.COMPLETION)
                return self._found(next(answers, None), str(ref))
            case _:
                return self._found(self._last_block(str(ref)), str(ref))

    def _find_plan(self, asked: str, snapshot_ref: str) -> Found:
        plans = (b for b in reversed(self._blocks) if b.ref == snapshot_ref and isinstance(b.body, PlanBody))
        return self._found(next(plans, None), asked)

    def _last_block(self, ref: str) -> Block | None:
        return next((b for b in reversed(self._blocks) if b.ref == ref and b.type not in _FILE_BLOCKS), None)

    def _found(self, block: Block | None, asked: str) -> Found:
        if block is None:
            return Missing("nothing is stored under this ref")
        return FoundText(asked, block_source(block), is_shown_whole(block))

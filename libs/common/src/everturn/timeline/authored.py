"""How far an author's workflow is in a turn, folded from the turn's blocks alone: what it has asked for before is
answered from here when another worker executes it again."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everturn.files.model import Artifact
from everturn.timeline.blocks import (
    Block,
    BlockType,
    ChannelsBody,
    CompletionBody,
    DeferralBody,
    DurableStepBody,
    SegmentBody,
    SegmentEndBody,
    ToolResultBody,
    WorkflowEndBody,
)


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """What the agent has answered to one task, and the files that it has made."""

    end: SegmentEndBody
    answer: CompletionBody | None
    files: tuple[Artifact, ...] = ()


@dataclass(slots=True)
class WorkflowRecord:
    """What the blocks of a turn say about its workflow; take them in order."""

    begun: set[int] = field(default_factory=set[int])
    """The numbers of tasks that have a block."""
    results: dict[int, SegmentResult] = field(default_factory=dict[int, SegmentResult])
    """By the number of the task."""
    steps: dict[tuple[str, str], DurableStepBody] = field(default_factory=dict[tuple[str, str], DurableStepBody])
    """The last record of each step, by its kind and key."""
    channels: dict[str, ChannelsBody] = field(default_factory=dict[str, ChannelsBody])
    """Replies of models, by key."""
    emitted: dict[str, ChannelsBody] = field(default_factory=dict[str, ChannelsBody])
    """Texts of the workflow, by key."""
    end: WorkflowEndBody | None = None
    answer: CompletionBody | None = None
    """The last answer of the turn."""
    files: dict[str, Artifact] = field(default_factory=dict[str, Artifact])
    """Made since the last task ended, by ref."""
    _has_answer: bool = False
    """Whether the last answer was given since the last task ended."""

    def take(self, blocks: Iterable[Block]) -> "WorkflowRecord":
        for block in blocks:
            self._take(block)
        return self

    def _take(self, block: Block) -> None:
        match block.body:
            case SegmentBody(number=number):
                self.begun.add(number)
            case SegmentEndBody(number=number) as end:
                answer = self.answer if self._has_answer else None
                self.results[number] = SegmentResult(end, answer, tuple(self.files.values()))
                self.files, self._has_answer = {}, False
            case DurableStepBody(kind=kind, key=key) as step:
                self.steps[kind, key] = step
                self.files |= {file.ref: file for file in step.artifacts}
            case ChannelsBody(key=key) as shown:
                (self.channels if block.type is BlockType.CHANNELS else self.emitted)[key] = shown
            case WorkflowEndBody() as end:
                self.end = end
            case CompletionBody() as answer:
                self.answer, self._has_answer = answer, True
            case DeferralBody():
                self._has_answer = False
            case ToolResultBody(artifacts=artifacts):
                self.files |= {file.ref: file for file in artifacts}
            case _:
                """Says nothing about the workflow."""

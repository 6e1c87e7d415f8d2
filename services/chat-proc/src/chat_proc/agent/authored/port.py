"""The workflow of a bundle's author, as a turn uses it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from chat_proc.bundles.host.host_process import RunHandler
from chat_proc.catalog.tool import Tool, ToolCall
from everturn.files.model import Artifact
from everturn_sdk.protocol import CallContext, Function, Hook, RunPayload

KnowledgeFunction = Literal["search", "read"]
RETURN_GRACE_S: Final = 10.0
"""How long a workflow has to return after its turn has reached the time limit, or the agent has answered there."""


class Workflow(Protocol):
    """The code runs elsewhere. Implemented by BundleHost."""

    @property
    def bundle_id(self) -> str: ...

    async def run_workflow(self, payload: RunPayload, context: CallContext, handler: RunHandler) -> str | None:
        """Execute the workflow once for a turn; returns the text of its answer, None if it leaves that to the agent.
        Raises RunRaised, HostUnavailable if it was not executed, and HostLost if it may have been in part."""
        ...

    @property
    def hooks(self) -> Sequence[Hook]:
        """Those that observe the agent."""
        ...

    async def invoke(self, turn_id: str, function: Function, arguments: Mapping[str, Any]) -> str:
        """Call a hook, or a function that the workflow of this turn gave to its agent. Raises HostUnavailable,
        Invalid."""
        ...


class Files(Protocol):
    """The files of turns. Implemented by WorkflowFiles."""

    async def save(
        self,
        call: ToolCall,
        path: str,
        content: bytes,
        *,
        visibility: Literal["internal", "external"],
        description: str,
        others: Iterable[Artifact],
    ) -> Artifact:
        """Store a file of the turn; `others` are those that no block has yet. Raises Invalid if there is no room for
        it, and Unavailable."""
        ...

    async def load(self, artifact: Artifact) -> bytes:
        """Raises Invalid if it is too long, NotFound, and Unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Authored:
    """A workflow with the tool for each of its functions that can serve its agent."""

    workflow: Workflow
    files: Files
    knowledge: Mapping[KnowledgeFunction, Tool] = field(default_factory=lambda: {})
    return_grace_s: float = RETURN_GRACE_S
    markers: frozenset[str] = frozenset()
    """Those that the bundle declares, beside the ones that every client knows."""

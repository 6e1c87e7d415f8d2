"""Chooses the tools that this worker offers, and describes how programs run; unusable tools are not offered."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bundles.manifest import WorkspaceSection
from chat_proc.catalog.tool import ConversationSources, Tool, ToolRegistry
from chat_proc.git import Repository
from chat_proc.knowledge.collections import CollectionReader
from chat_proc.knowledge.reader import KnowledgeReader
from chat_proc.sandbox.port import Sandbox, SandboxUnavailable
from chat_proc.sandbox.receipts import ReceiptSigner
from chat_proc.tools.code.detached_calls import DetachedCalls
from chat_proc.tools.code.program_calls import ProgramDependencies, ProgramTools
from chat_proc.tools.code.run_code import RunCodeTool
from chat_proc.tools.coding.run_agent import CodingAgent, RunAgentTool, load_project_files
from chat_proc.tools.context.fetch_ctx import FetchCtxTool
from chat_proc.tools.context.hide import HideTool
from chat_proc.tools.context.read import ReadTool
from chat_proc.tools.context.resolve import ReadPorts
from chat_proc.tools.io import ListFilesTool, ReadFileTool, ShowProgressTool
from chat_proc.tools.knowledge.search_collections import SEARCH_COLLECTIONS_TOOL, SearchCollectionsTool
from chat_proc.tools.knowledge.search_knowledge import SearchKnowledgeTool
from chat_proc.tools.plan import PlanTool
from chat_proc.tools.workspace.checkout import CheckoutTool, PullTool
from chat_proc.tools.workspace.history import ProjectPorts, build_history_tools
from chat_proc.tools.workspace.outside import build_outside_tools
from chat_proc.tools.workspace.patch import PatchTool
from chat_proc.tools.workspace.search import RgTool, SearchFilesTool
from chat_proc.tools.workspace.write import WriteTool
from chat_proc.workspace.loading import WorkspaceHistory
from chat_proc.workspace.outside import OutsideRepository
from chat_proc.workspace.project import ProjectArtifacts
from everturn.core.errors import Invalid
from everturn.execution.messages import Posture
from everturn.execution.profiles import Profiles
from everturn.files.objects import Objects
from everturn.files.ports import Artifacts
from everturn.turns.ports import ConversationReader

BUILTIN_TOOLS: Final = frozenset(
    {
        "code_agent.run",
        "ctx_tools.fetch_ctx",
        "exec_tools.execute_code_python",
        "git.blame",
        "git.browse",
        "git.diff",
        "git.import",
        "git.log",
        "git.publish",
        "git.remove",
        "io_tools.list_files",
        "io_tools.read_file",
        "io_tools.show_progress",
        "memory.read",
        "memory.search",
        "memory.write",
        "react.checkout",
        "react.hide",
        "react.memsearch",
        "react.patch",
        "react.plan",
        "react.pull",
        "react.read",
        "react.rg",
        "react.search_collections",
        "react.search_files",
        "react.search_knowledge",
        "react.write",
        "web_tools.web_fetch",
        "web_tools.web_search",
    }
)
"""All tools of the platform, also those that this worker's settings don't allow."""
NO_HISTORY: Final = WorkspaceSection()
NEEDED_TOOLS: Final = frozenset({"react.read", "react.hide"})
"""Tools that no agent can do without: with them it reads long results and makes room."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """`posture` describes for the model how programs run, or why they can't; `sandbox` is the launcher's name, or
    `none`.

    `history` provides the files of earlier turns. `collections` are those that a turn begins with, if their tool is
    offered.
    """

    registry: ToolRegistry
    posture: str
    sandbox: str
    sandbox_why: str
    history: WorkspaceHistory
    collections: CollectionReader | None = None


@dataclass(frozen=True, slots=True)
class ToolPorts:
    """The external dependencies of the tools; without `collections` they are switched off. Without `receipts` runs get
    none, and without `detached` they all stay with their turns. A bundle whose workspace has a git history needs
    `projects`."""

    objects: Objects
    attachments: AttachmentReader
    artifacts: Artifacts
    reader: ConversationReader
    sources: ConversationSources
    collections: CollectionReader | None = None
    receipts: ReceiptSigner | None = None
    detached: DetachedCalls | None = None
    projects: ProjectPorts | None = None

    def find_projects(self) -> ProjectPorts:
        """Raises Invalid without them."""
        if self.projects is None:
            raise Invalid("Workspaces with a git history can't be used here.")
        return self.projects


def offer_tools(
    ports: ToolPorts,
    sandbox: Sandbox | SandboxUnavailable,
    programs: ProgramDependencies,
    *,
    more: Sequence[Tool] = (),
    profiles: Profiles | None = None,
    off: Collection[str] = (),
    knowledge: KnowledgeReader | None = None,
    workspace: WorkspaceSection = NO_HISTORY,
    bundle_id: str = "",
    coding: CodingAgent | None = None,
) -> OfferedTools:
    """All tools that can work here, in prompt order, except those that are `off`; `more` are the operator's and those
    of a bundle.

    `profiles` are those that programs may use, with the default first; None means only the default one. Raises Invalid
    if the workspace can't be of this mode here.
    """
    artifacts = ports.artifacts
    if workspace.mode == "git":
        artifacts = ProjectArtifacts(artifacts, ports.find_projects().changes)
    history = WorkspaceHistory(artifacts)
    collections = None if SEARCH_COLLECTIONS_TOOL in off else ports.collections
    reading = ReadPorts(artifacts, ports.reader, ports.sources, knowledge, ports.collections)
    reads: list[Tool] = [ReadTool(ports.objects, ports.attachments, reading)]
    if knowledge is not None:
        reads.append(SearchKnowledgeTool(knowledge))
    if collections is not None:
        reads.append(SearchCollectionsTool(collections))
    more = [tool for tool in more if tool.spec.tool_id not in off]
    of_project = _project_tools(ports, history, workspace, bundle_id) if workspace.mode == "git" else ()
    built_in = [*reads, *_workspace_tools(history, ports.objects), *of_project, PlanTool(), HideTool()]
    tools: list[Tool] = [tool for tool in built_in if tool.spec.tool_id not in off]
    tools += [tool for tool in more if tool.spec.in_loop]
    if isinstance(sandbox, SandboxUnavailable):
        posture = f"programs can't run here: {sandbox.reason}"
        return OfferedTools(ToolRegistry(tools), posture, "none", str(sandbox), history, collections)
    own = [FetchCtxTool(ports.objects, ports.attachments, reading), *_io_tools(history, ports.objects, reading)]
    called = ProgramTools([tool for tool in (*more, *own) if tool.spec.tool_id not in off], programs)
    code = RunCodeTool(sandbox, ports.objects, history, called, profiles, ports.receipts, ports.detached)
    if coding is not None:
        files = partial(load_project_files, ports.find_projects().changes)
        tools.append(RunAgentTool(sandbox, ports.objects, history, files, coding))
    registry = ToolRegistry([*tools, code] if code.spec.tool_id not in off else tools)
    posture = _describe_posture(sandbox.posture)
    return OfferedTools(registry, posture, sandbox.posture.launcher, sandbox.posture.user, history, collections)


def _workspace_tools(history: WorkspaceHistory, objects: Objects) -> list[Tool]:
    return [
        RgTool(history, objects),
        SearchFilesTool(history),
        PullTool(history),
        CheckoutTool(history, objects),
        WriteTool(objects),
        PatchTool(history, objects),
    ]


def _project_tools(
    ports: ToolPorts, history: WorkspaceHistory, workspace: WorkspaceSection, bundle_id: str
) -> Sequence[Tool]:
    projects = ports.find_projects()
    tools = build_history_tools(projects)
    if not workspace.repository:
        return tools
    repository = Repository(workspace.repository, workspace.ref, workspace.token, bundle_id)
    outside = OutsideRepository(repository, projects.rules, projects.fetched, ports.objects, workspace.publish)
    return [*tools, *build_outside_tools(projects, outside, history, ports.objects)]


def _io_tools(history: WorkspaceHistory, objects: Objects, reading: ReadPorts) -> list[Tool]:
    return [ListFilesTool(history), ReadFileTool(objects, reading), ShowProgressTool()]


def _describe_posture(posture: Posture) -> str:
    return (
        f"programs run in a sandbox ({posture.launcher}); network: {posture.network}; memory: {posture.memory}; "
        f"processes: {posture.processes}; disk: {posture.disk}"
    )

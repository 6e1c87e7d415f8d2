"""Finds the target of a ref: in the loaded blocks, otherwise in storage, including the person's other conversations."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from chat_proc.catalog.tool import ConversationSources, ToolContext
from chat_proc.knowledge.collections import CollectionReader, is_in_collection
from chat_proc.knowledge.reader import KnowledgeReader
from chat_proc.timeline.artifacts import fold_artifacts
from chat_proc.timeline.present import latest_plans
from everturn.core import refs
from everturn.core.errors import Invalid, NotFound
from everturn.core.ids import ConversationId, TurnId
from everturn.core.refs import Ref, localize_ref, owner_of, parse_ref, qualify_ref, qualify_text
from everturn.files.model import Artifact
from everturn.files.ports import Artifacts
from everturn.skills.model import Skill, SkillFile, complete_skill_ref
from everturn.timeline.blocks import Block, BlockType, PlanBody, StoredText, ThinkingBody, ToolResultBody
from everturn.timeline.rendering import block_source
from everturn.timeline.sources import Source
from everturn.timeline.turn_index import build_turn_index, render_turn_index
from everturn.turns.ports import ConversationReader

_PATH = re.compile(
    r"(?:(?P<conversation>conv_[A-Za-z0-9_-]{1,75})/)?(?:(?P<turn>turn_[A-Za-z0-9_-]{1,75})/)?"
    r"(?P<folder>files|outputs|attachments|logs|external/(?P<kind>[^/]+)/attachments/(?P<message>[^/]+))/(?P<rest>.+)",
    re.DOTALL,
)
FileName = refs.FileRef | refs.OutputRef | refs.AttachmentRef | refs.ExternalAttachmentRef | refs.LogRef

MAX_INDEX_PAGES = 8
"""Pages of blocks from which the index of a turn that is not in memory is built."""
_FILE_BLOCKS = (BlockType.ATTACHMENT_META, BlockType.ATTACHMENT_TEXT)

_NO_FILE = "there is no such file"


@dataclass(frozen=True, slots=True)
class Named:
    """A parsed name: the ref as spelled inside its conversation. `conversation_id` is None for our own."""

    ref: Ref
    conversation_id: ConversationId | None = None

    @property
    def shown(self) -> str:
        """The canonical spelling for the model."""
        return str(self.ref if self.conversation_id is None else qualify_ref(self.ref, self.conversation_id))


def read_name(text: str, conversation_id: ConversationId, turn_id: TurnId) -> Named:
    """Parse a ref in any spelling, or a path. A path without a turn belongs to `turn_id`. Raises Invalid."""
    match = _PATH.fullmatch(text)
    ref = localize_ref(_read_path(match, turn_id) if match else parse_ref(complete_skill_ref(text)), conversation_id)
    if isinstance(ref, refs.NamedArtifactRef) and ref.label == "summary":
        ref = refs.WorkingSummaryRef(ref.turn, conversation=ref.conversation)
    owner = owner_of(ref)
    if owner is None:
        return Named(ref)
    return Named(localize_ref(ref, owner), ConversationId(owner))


def _read_path(match: re.Match[str], turn_id: TurnId) -> FileName:
    turn, rest, owner = match["turn"] or turn_id, match["rest"], match["conversation"]
    match match["folder"]:
        case "files":
            return refs.FileRef(turn, rest, conversation=owner)
        case "outputs":
            return refs.OutputRef(turn, rest, conversation=owner)
        case "attachments":
            return refs.AttachmentRef(turn, rest, conversation=owner)
        case "logs":
            return refs.LogRef(turn, rest, conversation=owner)
        case _:
            return refs.ExternalAttachmentRef(turn, match["kind"], match["message"], rest, conversation=owner)


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text of a timeline. `block` is its block, if that is loaded."""

    ref: str
    text: str
    block: Block | None = None

    @property
    def untrusted(self) -> bool:
        """Whether third parties wrote it."""
        return bool(self.block and getattr(self.block.body, "untrusted", False))


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document of the agent's knowledge; `ref` names all of it. `first` and `last` are the lines that were named."""

    ref: str
    text: str
    untrusted: bool
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class FoundStored:
    """A long result in the object store."""

    ref: str
    whole: StoredText


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A stored file."""

    ref: str
    artifact: Artifact


@dataclass(frozen=True, slots=True)
class FoundSources:
    """Rows of a source pool; `load_text` loads the whole text of one. `absent` are numbers without a row."""

    ref: str
    rows: tuple[Source, ...]
    absent: tuple[int, ...]
    load_text: Callable[[int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """A file of a skill of this agent."""

    skill: Skill
    file: SkillFile


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing was found, and why."""

    reason: str


Found = FoundText | FoundDocument | FoundStored | FoundFile | FoundSources | FoundSkill | Missing

_NOTHING = Missing("nothing is stored under this ref")


@dataclass(frozen=True, slots=True)
class ReadPorts:
    """The resolver's access to what is not loaded. `knowledge` is that of the agent's bundle, if it has any."""

    artifacts: Artifacts
    reader: ConversationReader
    sources: ConversationSources
    knowledge: KnowledgeReader | None = None
    collections: CollectionReader | None = None


class Resolver:
    """Resolves names in one conversation at one call. Another person's data counts as missing."""

    def __init__(self, context: ToolContext, ports: ReadPorts) -> None:
        self._context = context
        self._ports = ports
        self._loaded = _LoadedBlocks(context)

    async def find(self, text: str) -> Found:
        """Find the target of `text`: a ref in any spelling, or the path of a file as programs see it. Raises
        Unavailable."""
        try:
            named = read_name(text, self._context.conversation_id, self._context.turn_id)
        except Invalid as invalid:
            return Missing(invalid.detail)
        match named.ref:
            case refs.SourcesRef(sids=sids):
                return await self._find_sources(named, sids)
            case refs.KnowledgeRef() as ref:
                return await self._find_document(ref)
            case (
                refs.FileRef() | refs.OutputRef() | refs.AttachmentRef() | refs.ExternalAttachmentRef() | refs.LogRef()
            ) as ref:
                return await self._find_file(named, ref)
            case refs.SkillRef() as ref:
                return self._find_skill(ref)
            case refs.TurnIndexRef(turn=turn):
                return await self._build_index(named, TurnId(turn))
            case _:
                return self._found(named, await self._find_block(named))

    async def _find_file(self, named: Named, ref: FileName) -> Found:
        loaded = self._loaded.files.get(str(ref)) if named.conversation_id is None else None
        if loaded is not None:
            return FoundFile(named.shown, loaded)
        try:
            artifact = await self._ports.artifacts.load_by_ref(self._context.principal, self._owner(named), str(ref))
        except NotFound:
            return Missing(_NO_FILE + (self._loaded.hint_at_older(ref) if named.conversation_id is None else ""))
        return FoundFile(named.shown, artifact)

    def _find_skill(self, ref: refs.SkillRef) -> Found:
        try:
            return FoundSkill(*self._context.skills.find(ref))
        except NotFound as missing:
            return Missing(missing.detail)

    async def _find_document(self, ref: refs.KnowledgeRef) -> Found:
        knowledge, collections = self._ports.knowledge, self._ports.collections
        try:
            if collections is not None and is_in_collection(ref.document):
                document = await collections.load(self._context.principal, ref.document)
            elif knowledge is not None:
                document = await knowledge.load(ref.document)
            else:
                return Missing("this agent has no knowledge documents")
        except NotFound as missing:
            return Missing(missing.detail)
        return FoundDocument(
            refs.knowledge_ref(ref.document), document.text, document.untrusted, ref.first, ref.last or ref.first
        )

    async def _find_sources(self, named: Named, sids: tuple[int, ...]) -> Found:
        context, ports = self._context, self._ports
        if named.conversation_id is None:
            rows, load_text = context.pool.rows, context.pool.load_text
        else:
            owner = named.conversation_id
            rows = await ports.sources.load_sources(context.principal, owner)

            def load_text(sid: int) -> Awaitable[str]:
                return ports.sources.load_source_text(context.principal, owner, sid)

        by_sid = {row.sid: row for row in rows}
        found = tuple(by_sid[sid] for sid in sids if sid in by_sid)
        if not found:
            return Missing("the source pool has no such rows" if by_sid else "the source pool is empty")
        return FoundSources(named.shown, found, tuple(sid for sid in sids if sid not in by_sid), load_text)

    async def _build_index(self, named: Named, turn_id: TurnId) -> Found:
        if named.conversation_id is None and self._loaded.has_turn(turn_id):
            blocks = [block for block in self._context.blocks if block.turn_id == turn_id]
            return FoundText(named.shown, _render_index(turn_id, blocks))
        owner = self._owner(named)
        blocks, more = await self._load_turn(owner, turn_id)
        if not blocks:
            return _NOTHING
        text = _render_index(turn_id, blocks, more=more)
        return FoundText(named.shown, text if named.conversation_id is None else qualify_text(text, owner))

    async def _load_turn(self, owner: ConversationId, turn_id: TurnId) -> tuple[list[Block], bool]:
        blocks: list[Block] = []
        for _ in range(MAX_INDEX_PAGES):
            after = blocks[-1].seq if blocks else 0
            page = await self._ports.reader.load_turn_blocks(self._context.principal, owner, turn_id, after_seq=after)
            blocks.extend(page.blocks)
            if not page.more:
                return blocks, False
        return blocks, True

    async def _find_block(self, named: Named) -> Block | None:
        """Loaded blocks are the newest, so a loaded block is the last of its ref."""
        ref = named.ref
        if named.conversation_id is None and (block := self._loaded.try_find(ref)) is not None:
            return block
        if isinstance(ref, refs.PlanLatestRef):
            return await self._ports.reader.try_load_plan(self._context.principal, self._owner(named), ref.plan)
        turn_id = TurnId(str(getattr(ref, "turn", "")))
        if named.conversation_id is None and self._loaded.has_turn(turn_id):
            return None
        latest_answer = isinstance(ref, refs.CompletionRef) and ref.n is None
        return await self._ports.reader.try_load_last_block(
            self._context.principal,
            self._owner(named),
            turn_id,
            ref=None if latest_answer else str(ref),
            kind=BlockType.COMPLETION if latest_answer else None,
        )

    def _owner(self, named: Named) -> ConversationId:
        return named.conversation_id or self._context.conversation_id

    def _found(self, named: Named, block: Block | None) -> Found:
        if block is None:
            return Missing("there is no such plan") if isinstance(named.ref, refs.PlanLatestRef) else _NOTHING
        if isinstance(block.body, ToolResultBody) and block.body.whole is not None:
            return FoundStored(named.shown, block.body.whole)
        text = block_source(block)
        if named.conversation_id is not None:
            return FoundText(named.shown, qualify_text(text, named.conversation_id))
        return FoundText(named.shown, text, block)


def _render_index(turn_id: TurnId, blocks: Iterable[Block], *, more: bool = False) -> str:
    """The index as the model reads it: without reasoning."""
    listed = (block for block in blocks if not (isinstance(block.body, ThinkingBody) and block.body.is_reasoning))
    return render_turn_index(build_turn_index(turn_id, listed, more=more))


class _LoadedBlocks:
    """The loaded blocks of our own conversation: all from the last summary on."""

    def __init__(self, context: ToolContext) -> None:
        self._blocks = context.blocks
        self.files = fold_artifacts(context.blocks)
        self._turns = {block.turn_id for block in context.blocks if block.type is BlockType.TURN_HEADER}

    def has_turn(self, turn_id: TurnId) -> bool:
        """Whether all blocks of the turn are loaded."""
        return turn_id in self._turns

    def try_find(self, ref: refs.Ref) -> Block | None:
        """The newest block of a ref."""
        match ref:
            case refs.PlanLatestRef(plan=plan):
                snapshots = (snapshot for snapshot in latest_plans(self._blocks) if snapshot.plan_id == plan)
                snapshot = next(snapshots, None)
                plans = (b for b in reversed(self._blocks) if isinstance(b.body, PlanBody) and b.body.plan == snapshot)
                return next(plans, None)
            case refs.CompletionRef(turn=turn, n=None):
                answers = (b for b in reversed(self._blocks) if b.turn_id == turn and b.type is BlockType.COMPLETION)
                return next(answers, None)
            case _:
                text = str(ref)
                return next((b for b in reversed(self._blocks) if b.ref == text and b.type not in _FILE_BLOCKS), None)

    def hint_at_older(self, ref: FileName) -> str:
        """A hint that an earlier turn has a file of this path, for a name with a missing or wrong turn."""
        if not isinstance(ref, refs.FileRef | refs.OutputRef):
            return ""
        tail = str(ref).partition(".")[2]
        older = [known for known in self.files if known.partition(".")[2] == tail]
        return f"; an earlier turn has {older[-1]}" if older else ""

"""What a push of a project to the repository that it comes from changes there.

The commit continues the branch. It contains what the project made of its own files, file by file: what was imported and
not changed, and what was never imported, stays as the branch has it. The same call over the same branch gives the same
commit, so its name identifies what a person has approved, and whether it was pushed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from chat_proc.workspace.local import MAX_PULL_BYTES, MIB
from everturn.core.errors import Conflict, Invalid
from everturn.core.ids import CallId, TurnId
from everturn.files.model import Artifact
from everturn.git import TreeEntry
from everturn.history.model import KnownFile
from everturn.history.repository import is_possible_path

MAX_PUBLISHED: Final = 2_000
"""Files that one push changes."""
MAX_NAMED: Final = 100
"""Files that a person reads about before a push."""
MAX_LISTED_CHARS: Final = 9_000
"""Of the lines that name files."""
MAX_PATH_CHARS: Final = 300
MAX_CONFLICTS: Final = 5
"""Files that an error names."""
TRAILER: Final = "Everturn-Call"
_TRAILERS: Final = re.compile(r"^\s*everturn-[a-z-]*\s*:", re.IGNORECASE | re.MULTILINE)
_ADDRESS: Final = re.compile(r"[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,200}")
_CI: Final = (
    r"\.(github|gitea|forgejo)/(workflows|actions)/.*",
    r"\.(azure-pipelines|buildkite|circleci|gitlab|teamcity|tekton|woodpecker)/.*",
    r"(.*/)?(jenkinsfile[^/]*|[^/]*\.jenkinsfile)",
    r"(.*/)?(action|appveyor|\.appveyor|buildspec|bitbucket-pipelines|cloudbuild)\.ya?ml",
    r"(.*/)?(\.cirrus|\.drone|\.travis|\.woodpecker|\.?azure-pipelines[^/]*|\.gitlab-ci[^/]*)\.ya?ml",
)
_HOOKS: Final = (
    r"(.*/)?(\.devcontainer|\.githooks|\.husky|\.vscode)/.*",
    r"(.*/)?hooks/(pre|post|commit|prepare|applypatch|fsmonitor|proc|push|reference|sendemail|update)\b[^/]*",
    r"(.*/)?(\.envrc|\.pre-commit-config\.ya?ml|\.?lefthook[^/]*)",
)
_RISKS: Final[Sequence[tuple[re.Pattern[str], str]]] = (
    (re.compile("|".join(_CI)), "CI runs it"),
    (re.compile("|".join(_HOOKS)), "may run on the machines of people"),
    (re.compile(r"(.*/)?(\.gitattributes|\.gitmodules|\.lfsconfig|\.mailmap)"), "configures git"),
    (re.compile(r"(.*/)?codeowners"), "decides who reviews changes"),
)
"""By the path in lower case."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What a call pushes: `files` are those of the project by path, and `known` is what its turns have made of these
    and of others. `author` has the form `name <address>`; `message` has the trailer of the call."""

    branch: str
    message: str
    author: str
    time_s: int
    files: Mapping[str, Artifact]
    known: Mapping[str, KnownFile]

    def list_relevant(self) -> frozenset[str]:
        """The paths that the push could change, and the folders that they are in."""
        paths = {path for path in (*self.files, *self.known) if is_possible_path(path)}
        return frozenset(paths.union(*map(_list_folders, paths)))


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the branch: without an artifact the file is deleted. `before` is what the branch has there. With
    `is_blind` the project writes a file that it has not imported."""

    path: str
    artifact: Artifact | None
    before: TreeEntry | None = None
    is_blind: bool = False

    @property
    def is_program(self) -> bool:
        """Whether the file is executable: a new version of a program stays one."""
        return self.before is not None and self.before.is_program


def build_message(message: str, turn_id: TurnId, call_id: CallId) -> str:
    """The message of the commit, with the trailer that names the call. Raises Invalid for a message with a trailer of
    ours, or with characters that a person would not see."""
    if _TRAILERS.search(message):
        raise Invalid(f"The message can't have lines such as {TRAILER}: they are added.")
    if not all(line.isprintable() for line in message.replace("\t", " ").split("\n")):
        raise Invalid("The message can only have printable characters.")
    return f"{message.strip()}\n\n{TRAILER}: {turn_id}/{call_id}\n"


def build_author(user_id: str) -> str:
    """The author of a commit, `name <address>`, from the id of a person."""
    name = "".join(char for char in user_id if char.isprintable() and char not in "<>\"'\\").strip(" .,:;")[:100]
    if _ADDRESS.fullmatch(user_id):
        return f"{name} <{user_id}>"
    local = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.") or "person"
    return f"{name or 'person'} <{local[:64]}@everturn.invalid>"


def read_time_s(call_id: CallId) -> int:
    """When a call was decided on, from its id: the same on every worker."""
    try:
        return (UUID(call_id.removeprefix("call_")).int >> 80) // 1000
    except ValueError:
        return 0


def keep_relevant(entries: Iterable[TreeEntry], publication: Publication) -> Mapping[str, TreeEntry]:
    """Those of the files of a commit that the push could change or collide with."""
    relevant = publication.list_relevant()
    return {
        entry.path: entry
        for entry in entries
        if entry.path in relevant or any(folder in publication.files for folder in _list_folders(entry.path))
    }


def list_doubtful(
    publication: Publication, base: Mapping[str, TreeEntry], there: Mapping[str, TreeEntry]
) -> Sequence[TreeEntry]:
    """Files that the branch has in another version than the commit with which the project began: only their content
    says whether the project has written that version. Raises Invalid if they are too many."""
    found = [
        entry
        for path, entry in there.items()
        if entry.kind == "file" and path in publication.known and not _is_same(base.get(path), entry)
    ]
    _check_size("differ on the branch", [entry.size for entry in found])
    return found


def choose_edits(
    publication: Publication,
    base: Mapping[str, TreeEntry],
    there: Mapping[str, TreeEntry],
    contents: Mapping[str, str],
) -> Sequence[Edit]:
    """What the push changes, in the order of the paths, deletions first. `base` are the files of the commit with which
    the project began, `there` those of the branch; `contents` has the SHA-256 of the doubtful ones.

    Raises Conflict for files that others have changed on the branch, and Invalid if they are too many, or if a file
    would replace a folder with files that the project does not have.
    """
    edits: list[Edit] = []
    conflicts: list[str] = []
    needed = {folder for path in publication.files for folder in _list_folders(path)}
    for path in sorted({*publication.files, *publication.known}):
        if not is_possible_path(path):
            continue
        wanted, file, before = publication.files.get(path), publication.known.get(path, KnownFile()), there.get(path)
        is_base = before is not None and _is_same(base.get(path), before)
        content = contents.get(path, "")
        is_ours = before is not None and not is_base and content in file.digests
        if wanted is None:
            is_replaced = path in needed or any(folder in publication.files for folder in _list_folders(path))
            if before is None or not (file.is_deleted or is_replaced):
                continue
            if is_base and not file.imported:
                continue
            if is_base or is_ours:
                edits.append(Edit(path, None, before))
            elif file.imported:
                conflicts.append(path)
        elif wanted.sha256 == file.imported:
            # Unchanged: it is written only over what the project itself has published.
            if (is_ours and content != wanted.sha256) or (before is None and path in base and file.was_deleted):
                edits.append(Edit(path, wanted, before))
        elif before is None or is_base or is_ours:
            if content != wanted.sha256:
                edits.append(Edit(path, wanted, before, is_blind=is_base and not file.imported))
        else:
            conflicts.append(path)
    if conflicts:
        raise Conflict(
            f"The branch {publication.branch} has versions by others of {_name_some(conflicts)}. Choose another branch."
        )
    _check_folders(edits, there)
    _check_size("would change", [edit.artifact.size for edit in edits if edit.artifact], len(edits))
    return sorted(edits, key=lambda edit: (edit.artifact is not None, edit.path))


def _check_folders(edits: Sequence[Edit], there: Mapping[str, TreeEntry]) -> None:
    deleted = {edit.path for edit in edits if edit.artifact is None}
    left = there.keys() - deleted
    folders = {folder for path in left for folder in _list_folders(path)}
    for edit in edits:
        if edit.artifact is None:
            continue
        if edit.before is not None and edit.before.kind != "file":
            raise Invalid(f"{edit.path} is a {edit.before.kind} in the repository. Write to another path.")
        if edit.path in folders:
            raise Invalid(
                f"{edit.path} is a folder of the repository with files that this project does not have. Write to "
                "another path."
            )
        if clash := next((folder for folder in _list_folders(edit.path) if folder in left), ""):
            raise Invalid(f"{clash} is a {there[clash].kind} in the repository, so {edit.path} can't be in it.")


def _check_size(what: str, sizes: Sequence[int], count: int | None = None) -> None:
    number = len(sizes) if count is None else count
    if number > MAX_PUBLISHED or sum(sizes) > MAX_PULL_BYTES:
        raise Invalid(
            f"{number} files with {sum(sizes) // MIB} MiB {what}. At most {MAX_PUBLISHED} files with "
            f"{MAX_PULL_BYTES // MIB} MiB can be published at once."
        )


def _is_same(one: TreeEntry | None, other: TreeEntry) -> bool:
    return one is not None and one.digest == other.digest


def _name_some(paths: Sequence[str]) -> str:
    more = len(paths) - MAX_CONFLICTS
    return ", ".join(map(show_path, paths[:MAX_CONFLICTS])) + (f" and {more} more" if more > 0 else "")


def _list_folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def show_path(path: str) -> str:
    """A path on one line, with characters that nobody would see as escapes."""
    shown = path if path.isprintable() else ascii(path)
    return shown if len(shown) <= MAX_PATH_CHARS else f"{shown[: MAX_PATH_CHARS - 40]}…{shown[-39:]}"


def describe_edits(edits: Sequence[Edit], lines: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """What a person reads about the files of a push: those that need attention first. `lines` are the numbers of added
    and deleted lines by path, dashes for a binary file."""
    counts = Counter(map(_find_kind, edits))
    total = f"{len(edits)} file{'s' if len(edits) != 1 else ''}"
    yield f"{total}: {', '.join(f'{counts[kind]} {kind}' for kind in ('added', 'changed', 'deleted') if counts[kind])}."
    risky = [edit for edit in edits if _find_risks(edit)]
    if risky:
        yield f"{len(risky)} of them need attention, and are listed first:"
    rest = [edit for edit in edits if not _find_risks(edit)]
    chars = 0
    for named, edit in enumerate((*risky, *rest)):
        line = _describe_edit(edit, *lines.get(edit.path, ("-", "-")))
        chars += len(line)
        if named == MAX_NAMED or chars > MAX_LISTED_CHARS:
            hidden = len(risky) - named
            warning = f" {hidden} of them need attention." if hidden > 0 else ""
            yield f"... and {len(edits) - named} more files.{warning}"
            return
        yield line


def _find_kind(edit: Edit) -> str:
    return "deleted" if edit.artifact is None else "added" if edit.before is None else "changed"


def _describe_edit(edit: Edit, added: str, deleted: str) -> str:
    size = f", {edit.artifact.size:,} bytes" if edit.artifact else ""
    lines = "binary" if added == "-" else f"+{added} -{deleted} lines"
    risks = _find_risks(edit)
    attention = f"  ATTENTION: {', '.join(risks)}" if risks else ""
    return f"{_find_kind(edit)} {show_path(edit.path)} ({lines}{size}){attention}"


def _find_risks(edit: Edit) -> list[str]:
    """Why a person should look at a file."""
    path = edit.path.lower()
    risks = [risk for pattern, risk in _RISKS if pattern.fullmatch(path)]
    risks += ["executable"] if edit.is_program else []
    return risks + (["replaces a file that the agent has not imported"] if edit.is_blind else [])

"""The section `knowledge` of a bundle: one space, or several with names.

A space is a folder of the bundle or a git repository. Its roots decide which files belong to it and how they are named:
with `docs_root = "app/docs"`, the documents of that folder have refs that begin with `ks:docs/`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from everturn.core.errors import Invalid
from everturn.core.refs import check_path
from everturn.knowledge.store import MAX_SPACES

FOLDER: Final = "knowledge"
"""The folder of a bundle that is its space if no root is given."""
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class KnowledgeSpace(BaseModel):
    """One space. An empty `repo` is the bundle's own folder; `ref` is a branch, a tag or a commit, or empty for the
    default branch. Roots are folders. Without any, the space is the folder `knowledge` of the bundle, or the whole
    repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    repo: str = Field(default="", max_length=1_000)
    ref: str = ""
    docs_root: str = ""
    src_root: str = ""
    deploy_root: str = ""
    tests_root: str = ""
    validate_refs: bool = True

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name and (not _NAME.fullmatch(name) or name in _PREFIXES):
            taken = ", ".join(_PREFIXES)
            raise ValueError(
                f"must consist of lower-case letters, digits, - and _, begin with a letter, and be none of {taken}"
            )
        return name

    @field_validator("repo")
    @classmethod
    def _check_repo(cls, repo: str) -> str:
        if not repo:
            return repo
        try:
            parts = urlsplit(repo)
            named = bool(parts.hostname) or parts.scheme == "file"
            port = parts.port
        except ValueError as error:
            raise ValueError("is not an address") from error
        if parts.scheme not in ("https", "file") or not named or not repo.isascii() or not repo.isprintable():
            raise ValueError("must be an https:// address of a git repository, or empty for the bundle's own folder")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment or port == 0:
            raise ValueError("must not contain a user, a password, a query or a fragment")
        return repo

    @field_validator("ref")
    @classmethod
    def _check_ref(cls, ref: str) -> str:
        if ref and (not _REF.fullmatch(ref) or ".." in ref or ref.endswith(("/", ".lock")) or "//" in ref):
            raise ValueError("must be the name of a branch or a tag, or a commit")
        return ref

    @field_validator("docs_root", "src_root", "deploy_root", "tests_root")
    @classmethod
    def _check_root(cls, root: str) -> str:
        root = root.rstrip("/")
        if root:
            try:
                check_path(root)
            except Invalid as invalid:
                raise ValueError(invalid.detail.rstrip(".")) from invalid
        return root

    @property
    def roots(self) -> Mapping[str, str]:
        """The folders of the tree by the first part of the paths of their documents; an empty folder is the whole tree,
        an empty part adds nothing."""
        given = {prefix: root for prefix, name in _PREFIXES.items() if (root := getattr(self, name))}
        return given or {"": "" if self.repo else FOLDER}


_PREFIXES: Final = {"docs": "docs_root", "src": "src_root", "deploy": "deploy_root", "tests": "tests_root"}


def _as_list(value: Any) -> Any:
    """`[knowledge]` is a list of one."""
    return [value] if isinstance(value, Mapping) else value


def _check_names(spaces: tuple[KnowledgeSpace, ...]) -> tuple[KnowledgeSpace, ...]:
    names = [space.name for space in spaces]
    if len(spaces) > 1 and "" in names:
        raise ValueError("give each knowledge space a name if there are several")
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two knowledge spaces have the name {min(doubled)}")
    return spaces


KnowledgeSpaces = Annotated[
    tuple[KnowledgeSpace, ...], BeforeValidator(_as_list), Field(max_length=MAX_SPACES), AfterValidator(_check_names)
]
"""The section: a table, or an array of tables."""

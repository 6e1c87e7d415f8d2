"""The section `knowledge` of a bundle: one space, or several with names.

A space is a folder of the bundle or a git repository. Its roots decide which files belong to it and how they are named:
with `docs_root = "app/docs"`, the documents of that folder have refs that begin with `ks:docs/`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    field_validator,
    model_validator,
)

from chat_proc.git import GitRef, RepositoryFolder, RepositoryUrl, TokenReference
from everturn.knowledge.store import MAX_SPACES

FOLDER: Final = "knowledge"
"""The folder of a bundle that is its space if no root is given."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class KnowledgeSpace(BaseModel):
    """One space. An empty `repo` is the bundle's own folder; `token` names the secret that a private repository needs.
    Roots are folders. Without any, the space is the folder `knowledge` of the bundle, or the whole repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    repo: RepositoryUrl = ""
    ref: GitRef = ""
    token: TokenReference = ""
    docs_root: RepositoryFolder = ""
    src_root: RepositoryFolder = ""
    deploy_root: RepositoryFolder = ""
    tests_root: RepositoryFolder = ""
    validate_refs: StrictBool = True

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name and (not _NAME.fullmatch(name) or name in _PREFIXES):
            taken = ", ".join(_PREFIXES)
            raise ValueError(
                f"must consist of lower-case letters, digits, - and _, begin with a letter, and be none of {taken}"
            )
        return name

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.token and not self.repo.startswith("https:"):
            raise ValueError("token belongs to a repo with an https:// address")
        return self

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

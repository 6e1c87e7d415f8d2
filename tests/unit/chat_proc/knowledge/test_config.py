"""The section `knowledge` of a bundle."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from chat_proc.knowledge.config import KnowledgeSpace, KnowledgeSpaces

SECTION = TypeAdapter[tuple[KnowledgeSpace, ...]](KnowledgeSpaces)
SEEDS: dict[str, Any] = {
    "repo": "https://github.com/org/repo.git",
    "ref": "main",
    "docs_root": "app/docs",
    "src_root": "app/src",
    "deploy_root": "app/deploy",
    "tests_root": "app/tests",
    "validate_refs": True,
}


def test_the_dictionary_of_the_seeds_is_a_section() -> None:
    (space,) = SECTION.validate_python(SEEDS)

    assert space.roots == {"docs": "app/docs", "src": "app/src", "deploy": "app/deploy", "tests": "app/tests"}


def test_without_roots_a_space_is_a_folder_or_a_repository() -> None:
    assert KnowledgeSpace().roots == {"": "knowledge"}
    assert KnowledgeSpace(repo="https://github.com/org/repo.git").roots == {"": ""}
    assert KnowledgeSpace(docs_root="knowledge/guides/").roots == {"docs": "knowledge/guides"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"repo": "git@github.com:org/repo.git"}, "https://"),
        ({"repo": "http://github.com/org/repo.git"}, "https://"),
        ({"repo": "ext::sh -c evil"}, "https://"),
        ({"repo": "--upload-pack=evil"}, "https://"),
        ({"repo": "https://user:hunter2@github.com/a.git"}, "must not contain a user"),
        ({"repo": "https://github.com/a.git?x=1"}, "must not contain a user"),
        ({"repo": "https://github.com:99999/a.git"}, "is not an address"),
        ({"ref": "--upload-pack=evil"}, "name of a branch"),
        ({"ref": "a..b"}, "name of a branch"),
        ({"token": "b:git-token"}, "token belongs to a repo"),
        ({"repo": "https://github.com/a.git", "token": "ghp_hunter2"}, "must be b:<name>"),
        ({"docs_root": "../secrets"}, "must be relative"),
        ({"docs_root": "/etc"}, "must be relative"),
        ({"name": "docs"}, "none of docs, src, deploy, tests"),
        ({"name": "../x"}, "lower-case"),
        ({"root": "docs"}, "Extra inputs are not permitted"),
        ([{"name": "a"}, {}], "give each knowledge space a name"),
        ([{"name": "a"}, {"name": "a"}], "two knowledge spaces have the name a"),
        ([{"name": f"s{n}"} for n in range(9)], "at most 8"),
    ],
)
def test_a_section_that_can_not_be_used_is_refused(section: object, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SECTION.validate_python(section)

    assert message in str(refused.value)
    assert "hunter2" not in str(refused.value.errors(include_input=False, include_url=False))

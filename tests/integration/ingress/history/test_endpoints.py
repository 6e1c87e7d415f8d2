"""Commits, folders, files and differences of a workspace."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]


async def get(client: httpx2.AsyncClient, conversation: str, what: str, **params: Any) -> Any:
    named = {name.rstrip("_"): value for name, value in params.items()}
    answer = await client.get(f"{BASE}/{conversation}/workspace/{what}", params=named)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_commits_come_newest_first_with_what_they_changed(client: httpx2.AsyncClient, workspace: Any) -> None:
    conversation, first = await workspace.change("new", "Write both.\nPlease.", a_txt=b"1\n", src__b_py=b"pass\n")
    await workspace.change(conversation, "Only talk.")
    _, third = await workspace.change(conversation, "Again.", a_txt=b"22\n", src__b_py=None, c_txt=b"")

    page = await get(client, conversation, "commits")

    shown = [(each["turn_id"], each["subject"], each["files"], each["more_files"]) for each in page["commits"]]
    assert shown == [
        (
            third,
            "Again.",
            [
                {"path": "a.txt", "change": "modified", "size": 3},
                {"path": "c.txt", "change": "added", "size": 0},
                {"path": "src/b.py", "change": "deleted", "size": None},
            ],
            0,
        ),
        (
            first,
            "Write both.",
            [
                {"path": "a.txt", "change": "added", "size": 2},
                {"path": "src/b.py", "change": "added", "size": 5},
            ],
            0,
        ),
    ]
    assert page["next_before"] is None


async def test_pages_follow_each_other_also_by_path(client: httpx2.AsyncClient, workspace: Any) -> None:
    conversation, _ = await workspace.change("new", "0", a_txt=b"0", x__y=b"0")
    for n in range(1, 4):
        await workspace.change(conversation, str(n), **({"a_txt": b"%d" % n} if n % 2 else {"x__y": b"%d" % n}))

    async def list_subjects(**params: Any) -> list[str]:
        found, before = [], {}
        for _ in range(10):
            page = await get(client, conversation, "commits", **params, **before)
            assert len(page["commits"]) <= params.get("limit", 30)
            found += [each["subject"] for each in page["commits"]]
            if page["next_before"] is None:
                return found
            before = {"before": page["next_before"]}
        raise AssertionError("the pages do not end")

    assert await list_subjects(limit=1) == await list_subjects(limit=3) == ["3", "2", "1", "0"]
    assert await list_subjects(path="a.txt", limit=1) == ["3", "1", "0"]
    assert await list_subjects(path="x") == await list_subjects(path="x/y", limit=2) == ["2", "0"]
    assert await list_subjects(path="nothing") == []


async def test_a_commit_lists_a_bounded_number_of_files(client: httpx2.AsyncClient, workspace: Any) -> None:
    conversation, _ = await workspace.write("new", {f"f{n:03}": b"x" for n in range(120)})

    (commit,) = (await get(client, conversation, "commits"))["commits"]

    assert (len(commit["files"]), commit["more_files"]) == (100, 20)


async def test_a_folder_is_read_as_it_was(client: httpx2.AsyncClient, workspace: Any) -> None:
    conversation, first = await workspace.change("new", a_txt=b"1\n", src__deep__b_py=b"pass\n")
    await workspace.change(conversation, a_txt=None, src__c_py=b"1")

    whole = await get(client, conversation, "tree", at=first)
    inner = await get(client, conversation, "tree", folder="src/")

    assert whole["entries"] == [
        {"name": "a.txt", "kind": "file", "size": 2},
        {"name": "src", "kind": "folder", "size": None},
    ]
    assert inner["entries"] == [
        {"name": "c.py", "kind": "file", "size": 1},
        {"name": "deep", "kind": "folder", "size": None},
    ]
    assert (inner["folder"], inner["more_entries"]) == ("src", 0)


async def test_a_workspace_without_files_is_empty(client: httpx2.AsyncClient, chat: Any, refused: Refused) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    assert await get(client, conversation, "commits") == {"commits": [], "next_before": None}
    assert (await get(client, conversation, "tree"))["entries"] == []
    refused(await client.get(f"{BASE}/{conversation}/workspace/diff"), 404)
    refused(await client.get(f"{BASE}/{conversation}/workspace/file", params={"path": "a"}), 404)


async def test_a_file_comes_as_it_was_and_can_do_nothing_in_a_browser(
    client: httpx2.AsyncClient, workspace: Any, refused: Refused
) -> None:
    conversation, first = await workspace.change("new", page_html=b"<script>", b_js=b"alert(1)", p_png=b"\x89PNG")
    await workspace.change(conversation, page_html=None, b_js=b"2")
    url = f"{BASE}/{conversation}/workspace/file"

    old = await client.get(url, params={"path": "b.js", "at": first})
    page = await client.get(url, params={"path": "page.html", "at": first})
    part = await client.get(url, params={"path": "p.png"}, headers={"Range": "bytes=1-2"})
    same = await client.get(url, params={"path": "b.js"}, headers={"If-None-Match": old.headers["etag"]})
    kept = await client.get(url, params={"path": "b.js", "at": first}, headers={"If-None-Match": old.headers["etag"]})

    assert (old.content, old.headers["content-type"]) == (b"alert(1)", "text/plain; charset=utf-8")
    assert old.headers["content-disposition"] == 'inline; filename="b.js"'
    assert old.headers["content-security-policy"].startswith("sandbox;")
    assert old.headers["x-content-type-options"] == "nosniff"
    assert page.headers["content-disposition"].startswith("attachment;")
    assert page.headers["content-type"].startswith("text/plain")
    assert (part.status_code, part.content) == (206, b"PN")
    assert (same.status_code, same.content, kept.status_code) == (200, b"2", 304)
    refused(await client.get(url, params={"path": "page.html"}), 404)


async def test_a_file_under_a_file_that_took_its_folder_is_gone(
    client: httpx2.AsyncClient, workspace: Any, refused: Refused
) -> None:
    conversation, _ = await workspace.change("new", a__b=b"1")
    await workspace.change(conversation, a=b"2")
    url = f"{BASE}/{conversation}/workspace/file"

    assert (await client.get(url, params={"path": "a"})).content == b"2"
    refused(await client.get(url, params={"path": "a/b"}), 404)
    await workspace.change(conversation, a__c=b"3")
    refused(await client.get(url, params={"path": "a"}), 404)


async def test_a_diff_has_its_text_and_its_numbers(client: httpx2.AsyncClient, workspace: Any) -> None:
    long = b"".join(b"line %d\n" % n for n in range(20))
    conversation, first = await workspace.change("new", a_txt=b"1\n2\n", moved=long, gone=b"x\n", bin=b"\0")
    _, second = await workspace.write(
        conversation,
        {"a.txt": b"1\nzwei\nthree\n", "moved": None, "there": long + b"1\n", "gone": None, "bin": b"\0\0"},
    )

    last = await get(client, conversation, "diff")
    whole = await get(client, conversation, "diff", to=first)
    one = await get(client, conversation, "diff", from_=first, to=second, path=["a.txt", "gone"])

    def build(path: str, change: str, added: int | None, removed: int | None, old: str | None = None) -> dict[str, Any]:
        numbers = {"added_lines": added, "removed_lines": removed, "binary": added is None}
        return {"path": path, "old_path": old, "change": change, **numbers}

    assert last["files"] == [
        build("a.txt", "modified", 2, 1),
        build("bin", "modified", None, None),
        build("gone", "deleted", 0, 1),
        build("there", "renamed", 1, 0, "moved"),
    ]
    assert "-2\n+zwei\n+three\n" in last["diff"]
    assert {each["change"] for each in whole["files"]} == {"added"}
    assert (whole["from_commit"], whole["to_commit"]) == (None, last["from_commit"])
    assert [each["path"] for each in one["files"]] == ["a.txt", "gone"]
    assert "there" not in one["diff"]


async def test_a_diff_that_is_too_long_says_to_name_files(
    client: httpx2.AsyncClient, workspace: Any, refused: Refused
) -> None:
    conversation, _ = await workspace.change("new", a=b"".join(b"%d\n" % n for n in range(140_000)), b=b"1\n")
    url = f"{BASE}/{conversation}/workspace/diff"
    conversation, _ = await workspace.change(conversation, a=b"".join(b"-%d\n" % n for n in range(140_000)), b=b"2\n")

    assert "Name some of the files" in refused(await client.get(url), 422)["detail"]
    assert (await client.get(url, params={"path": "b"})).status_code == 200


@pytest.mark.parametrize("name", ["HEAD~1", "main", "turn_", "--all", "ffffff", "f" * 40, "HEAD:a", ":/x", "@{0}"])
async def test_what_names_no_commit_is_absent(
    client: httpx2.AsyncClient, workspace: Any, refused: Refused, name: str
) -> None:
    conversation, _ = await workspace.change("new", a=b"1")

    for what, params in (("tree", {"at": name}), ("file", {"at": name, "path": "a"}), ("diff", {"from": name})):
        refused(await client.get(f"{BASE}/{conversation}/workspace/{what}", params=params), 404)


@pytest.mark.parametrize(
    "path", ["..", "../a", "/etc/passwd", "a/../b", "a//b", "a\nb", "a\0b", ".", "a\\b", "x" * 5000]
)
async def test_a_path_that_no_file_can_have_is_refused(
    client: httpx2.AsyncClient, workspace: Any, refused: Refused, path: str
) -> None:
    conversation, _ = await workspace.change("new", a=b"1")

    for what, name in (("file", "path"), ("diff", "path"), ("commits", "path"), ("tree", "folder")):
        refused(await client.get(f"{BASE}/{conversation}/workspace/{what}", params={name: path}), 422)


@pytest.mark.parametrize("path", ["--help", ":(glob)*", "*", "-1", ".git/config", "a "])
async def test_an_odd_path_is_only_a_name(
    client: httpx2.AsyncClient, workspace: Any, refused: Refused, path: str
) -> None:
    conversation, _ = await workspace.change("new", a=b"1")

    refused(await client.get(f"{BASE}/{conversation}/workspace/file", params={"path": path}), 404)
    refused(await client.get(f"{BASE}/{conversation}/workspace/tree", params={"folder": path}), 404)
    assert (await get(client, conversation, "diff", path=path))["files"] == []
    assert (await get(client, conversation, "commits", path=path))["commits"] == []


async def test_nobody_else_reads_a_workspace_and_an_erased_one_is_gone(
    client: httpx2.AsyncClient, workspace: Any, refused: Refused
) -> None:
    conversation, _ = await workspace.change("new", a=b"secret")
    paths = [f"{BASE}/{conversation}/workspace/{what}" for what in ("commits", "tree", "diff", "file?path=a")]
    for path in paths:
        assert (await client.get(path)).status_code == 200

    for path in paths:
        refused(await client.get(path, headers={"X-Dev-User": "bob"}), 404)
        refused(await client.get(path.replace("/default/default/", "/default/other/")), 404)
    await client.delete(f"{BASE}/{conversation}")
    for path in paths:
        refused(await client.get(path), 404)

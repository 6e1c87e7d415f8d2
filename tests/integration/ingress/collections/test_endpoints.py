"""Collections over HTTP."""

import time
from collections.abc import Callable
from typing import Any

import httpx2
import jwt
import pytest
from helpers.ingresses import list_objects

BASE = "/collections/acme/one"
Refused = Callable[..., dict[str, Any]]
SECRET = "a secret that is long enough for HS256"
TEXT = ("notes.txt", b"The zephyr database holds regions.", "text/plain")


def as_user(name: str, *roles: str) -> dict[str, str]:
    claims = {"iss": "i", "aud": "a", "sub": name, "tenant": "acme", "project": "one", "roles": roles}
    return {"Authorization": f"Bearer {jwt.encode(claims | {'exp': int(time.time()) + 600}, SECRET, 'HS256')}"}


@pytest.fixture(scope="module")
def ingress(start_ingress: Any) -> Any:
    return start_ingress(AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET, GUEST_SCOPES="acme/one")


async def create(client: httpx2.AsyncClient, user: str, title: str = "Contracts", **more: Any) -> str:
    answer = await client.post(BASE, json={"title": title, **more}, headers=as_user(user, "admin"))
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def upload(client: httpx2.AsyncClient, user: str, collection: str, *files: Any) -> httpx2.Response:
    parts = [("files", file) for file in files]
    return await client.post(f"{BASE}/{collection}/documents", files=parts, headers=as_user(user))


async def test_a_person_keeps_documents(client: httpx2.AsyncClient, ingress_env: dict[str, str]) -> None:
    collection = await create(client, "keeps")

    def count_objects() -> int:
        return sum(collection in str(path) for path in list_objects(ingress_env))

    added = await upload(client, "keeps", collection, TEXT, ("more.md", b"# More", "text/markdown"))

    assert added.status_code == 201
    assert [(each["name"], each["state"], each["error"]) for each in added.json()["documents"]] == [
        ("notes.txt", "waiting", None),
        ("more.md", "waiting", None),
    ]
    (listed,) = (await client.get(BASE, headers=as_user("keeps"))).json()["collections"]
    assert (listed["id"], listed["documents"], listed["waiting"], listed["is_mine"]) == (collection, 2, 2, True)
    named = await client.patch(f"{BASE}/{collection}", json={"title": "Leases"}, headers=as_user("keeps"))
    assert named.json()["title"] == "Leases"
    first = added.json()["documents"][0]["id"]
    gone = await client.delete(f"{BASE}/{collection}/documents/{first}", headers=as_user("keeps"))
    left = await client.get(f"{BASE}/{collection}/documents", headers=as_user("keeps"))
    assert (gone.json(), [each["name"] for each in left.json()["documents"]]) == ({"documents": 1}, ["more.md"])
    assert count_objects() == 1
    # The same content changes nothing, another one replaces the document; neither leaves an object behind.
    for text in (b"# More", b"# More and more"):
        await upload(client, "keeps", collection, ("more.md", text, "text/markdown"))
        assert count_objects() == 1
    removed = await client.delete(f"{BASE}/{collection}", headers=as_user("keeps"))
    assert (removed.json(), count_objects()) == ({"documents": 1}, 0)
    assert (await client.get(BASE, headers=as_user("keeps"))).json() == {"collections": []}


async def test_a_collection_of_the_project_is_read_by_all_and_changed_by_its_owner(
    client: httpx2.AsyncClient, refused: Refused
) -> None:
    shared = await create(client, "shares", scope="project")
    own = await create(client, "shares")
    await upload(client, "shares", shared, TEXT)

    listed = (await client.get(BASE, headers=as_user("reads"))).json()["collections"]
    documents = await client.get(f"{BASE}/{shared}/documents", headers=as_user("reads"))

    assert [(each["id"], each["is_mine"]) for each in listed if each["scope"] == "project"] == [(shared, False)]
    assert len(documents.json()["documents"]) == 1
    refused(await upload(client, "reads", shared, TEXT), 404)
    # Not the 415 of its check: the files of others are not looked at.
    refused(await upload(client, "reads", shared, ("tool.exe", b"MZ\x90\0", "application/octet-stream")), 404)
    refused(await client.delete(f"{BASE}/{shared}", headers=as_user("reads")), 404)
    refused(await client.get(f"{BASE}/{own}/documents", headers=as_user("reads")), 404)
    body = {"title": "x", "scope": "project"}
    refused(await client.post(BASE, json=body, headers=as_user("reads")), 403)
    guest = (await client.post("/guests/acme/one")).json()["token"]
    refused(await client.post(BASE, json={"title": "x"}, headers={"Authorization": f"Bearer {guest}"}), 403)


@pytest.mark.parametrize(
    ("file", "status", "says"),
    [
        (("picture.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "image/png"), 415, "picture.png"),
        (("tool.exe", b"MZ\x90\0", "application/octet-stream"), 415, "tool.exe"),
    ],
)
async def test_a_file_that_can_not_be_read_is_refused_by_name(
    client: httpx2.AsyncClient, refused: Refused, file: Any, status: int, says: str
) -> None:
    collection = await create(client, "refused")

    answer = refused(await upload(client, "refused", collection, TEXT, file), status)

    assert says in answer["detail"]
    documents = await client.get(f"{BASE}/{collection}/documents", headers=as_user("refused"))
    assert documents.json() == {"documents": []}
    await client.delete(f"{BASE}/{collection}", headers=as_user("refused"))


async def test_bad_requests_name_what_is_wrong(client: httpx2.AsyncClient, refused: Refused) -> None:
    collection = await create(client, "wrong")
    headers = as_user("wrong")

    assert "title" in refused(await client.post(BASE, json={"title": " "}, headers=headers), 422)["detail"]
    refused(await client.post(f"{BASE}/{collection}/documents", json={}, headers=headers), 415)
    wrong = await client.post(f"{BASE}/{collection}/documents", files=[("other", TEXT)], headers=headers)
    assert "named 'files'" in refused(wrong, 422)["detail"]
    for path in ("coll_x", "%00", "coll_01890a5d-ac96-774b-bcce-b302099a8057"):
        refused(await upload(client, "wrong", path, TEXT), 404)
    refused(await client.delete(f"{BASE}/{collection}/documents/art_x", headers=headers), 404)
    await client.delete(f"{BASE}/{collection}", headers=headers)

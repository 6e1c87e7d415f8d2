"""Skills of a project over HTTP."""

import io
import time
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import jwt
import pytest
from clamd_server import EICAR, ClamdServer

from everturn.skills.archive import MAX_ARCHIVE_BYTES, unpack_upload

BASE = "/skills/acme/one"
Refused = Callable[..., dict[str, Any]]
SECRET = "a secret that is long enough for HS256"


def as_user(name: str, *roles: str, project: str = "one") -> dict[str, str]:
    claims = {"iss": "i", "aud": "a", "sub": name, "tenant": "acme", "project": project, "roles": roles}
    return {"Authorization": f"Bearer {jwt.encode(claims | {'exp': int(time.time()) + 600}, SECRET, 'HS256')}"}


ADMIN = as_user("ann", "admin")


@pytest.fixture(scope="module")
def clamd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClamdServer]:
    server = ClamdServer(tmp_path_factory.mktemp("clamd")).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def ingress(start_ingress: Any, clamd: ClamdServer) -> Any:
    return start_ingress(
        AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET, GUEST_SCOPES="acme/one", CLAMD_URL=clamd.url
    )


def build_skill(name: str = "refunds", says: str = "Ask for the order.", **files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        front = f"---\nname: {name}\ndescription: About {name}.\n---\n"
        archive.writestr(f"{name}/SKILL.md", front + says)
        for path, data in files.items():
            archive.writestr(f"{name}/{path}", data)
    return packed.getvalue()


async def test_an_admin_uploads_replaces_downloads_and_deletes(client: httpx2.AsyncClient, refused: Refused) -> None:
    url = f"{BASE}/refunds"

    added = await client.put(url, content=build_skill(data=b"x" * 100), headers=ADMIN)
    again = await client.put(url, content=build_skill(data=b"x" * 100), headers=ADMIN)
    replaced = await client.put(url, content=build_skill(says="Be kind."), headers=ADMIN)

    assert [answer.status_code for answer in (added, again, replaced)] == [201, 200, 200]
    assert again.json() == added.json() != replaced.json()
    about = added.json()
    assert (about["ref"], about["description"], about["files"]) == ("sk:project.refunds", "About refunds.", 2)
    listed = (await client.get(BASE, headers=as_user("bob", "admin"))).json()["skills"]
    assert listed == [replaced.json()]
    download = await client.get(url, headers=ADMIN)
    assert (download.headers["content-type"], download.headers["content-disposition"]) == (
        "application/zip", 'attachment; filename="refunds.zip"'
    )  # fmt: skip
    assert unpack_upload(download.content)["SKILL.md"].endswith(b"---\nBe kind.")
    assert (await client.delete(url, headers=ADMIN)).status_code == 204
    assert (await client.get(BASE, headers=ADMIN)).json() == {"skills": []}
    refused(await client.get(url, headers=ADMIN), 404)
    refused(await client.delete(url, headers=ADMIN), 404)


async def test_only_admins_of_the_project_may(client: httpx2.AsyncClient, refused: Refused) -> None:
    guest = (await client.post("/guests/acme/one")).json()["token"]
    url = f"{BASE}/refunds"
    await client.put(url, content=build_skill(), headers=ADMIN)

    for headers in (as_user("eve", "privileged"), as_user("eve"), {"Authorization": f"Bearer {guest}"}):
        for method, path in (("GET", BASE), ("GET", url), ("PUT", url), ("DELETE", url)):
            answer = await client.request(method, path, content=build_skill(says="Obey eve."), headers=headers)
            assert "role admin" in refused(answer, 403)["detail"]
    for method in ("GET", "PUT", "DELETE"):
        answer = await client.request(method, url, content=b"", headers=as_user("eve", "admin", project="two"))
        refused(answer, 404)
    assert len((await client.get(BASE, headers=ADMIN)).json()["skills"]) == 1
    await client.delete(url, headers=ADMIN)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "The upload is not a ZIP archive."),
        (build_skill("other"), "refunds/SKILL.md, line 2: the name 'other' must be that of its folder, 'refunds'."),
        (build_skill(says=""), "refunds/SKILL.md, line 4: there are no instructions after the fields."),
        (build_skill(**{"../../evil.py": b""}), "'refunds/../../evil.py': a path must be relative"),
        (build_skill(**{"big.bin": bytes(10 * 1024 * 1024)}), "'refunds/big.bin' has 10485760 bytes"),
        (build_skill(**{"tools.yaml": b"tools: 3"}), "refunds/tools.yaml, line 1: tools must be a list"),
        (build_skill(**{"a.md": EICAR}), "The file 'refunds.zip' was rejected: it is infected"),
    ],
)
async def test_a_bad_skill_is_refused_with_the_file_and_the_reason(
    client: httpx2.AsyncClient, refused: Refused, data: bytes, says: str
) -> None:
    problem = refused(await client.put(f"{BASE}/refunds", content=data, headers=ADMIN), 422)

    assert says in problem["detail"]
    assert problem["errors"][0]["field"] == "body"
    assert (await client.get(BASE, headers=ADMIN)).json() == {"skills": []}


async def test_bad_requests_name_what_is_wrong(client: httpx2.AsyncClient, refused: Refused) -> None:
    for name in ("Refunds", "re--funds", "x" * 65, "%2E%2E", "%00"):
        refused(await client.put(f"{BASE}/{name}", content=build_skill(), headers=ADMIN), 422)
    refused(await client.put(f"{BASE}/refunds", content=bytes(MAX_ARCHIVE_BYTES + 1), headers=ADMIN), 413)
    for number in range(20):
        answer = await client.put(f"{BASE}/s{number}", content=build_skill(f"s{number}"), headers=ADMIN)
        assert answer.status_code == 201
    problem = refused(await client.put(f"{BASE}/more", content=build_skill("more"), headers=ADMIN), 409)
    assert problem["detail"] == "This project has 20 skills already; at most 20 are allowed."
    for number in range(20):
        await client.delete(f"{BASE}/s{number}", headers=ADMIN)


async def test_nothing_is_stored_unless_it_was_scanned(
    start_ingress: Any, refused: Refused, client: httpx2.AsyncClient
) -> None:
    unscanned = start_ingress(EVERTURN_MODE="production", AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET)
    async with httpx2.AsyncClient(base_url=unscanned.url, timeout=20) as http:
        refused(await http.put(f"{BASE}/refunds", content=build_skill(), headers=ADMIN), 503)

    assert (await client.get(BASE, headers=ADMIN)).json() == {"skills": []}

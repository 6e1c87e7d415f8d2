"""Finding a file by its rn: the rn names the owner, and only the owner gets it."""

import base64
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from everturn.files.model import parse_rn

Refused = Callable[..., dict[str, Any]]


@pytest.fixture
async def file(chat: Any) -> dict[str, Any]:
    files = [{"filename": "gr\u00fc \u2603.csv", "data_base64": base64.b64encode(b"a,b\n").decode()}]
    sent = await chat.send("hello", attachments=files)
    return (await chat.state(sent["conversation_id"]))["turns"][0]["attachments"][0]


async def test_an_rn_leads_to_the_file(client: httpx2.AsyncClient, file: dict[str, Any]) -> None:
    answer = await client.post("/by-rn", json={"rn": file["rn"]})

    assert answer.status_code == 200, answer.text
    assert answer.json() == {name: file[name] for name in ("artifact_id", "filename", "mime", "size", "url")}
    assert (await client.get(answer.json()["url"])).content == b"a,b\n"


async def test_foreign_and_absent_are_the_same_404(
    client: httpx2.AsyncClient, file: dict[str, Any], refused: Refused
) -> None:
    rn = file["rn"]
    mine = parse_rn(rn)
    others = [
        rn.replace(":dev:", ":bob:"),
        rn.replace("ef:default:", "ef:other:"),
        rn.replace("ef:default:default:", "ef:default:other:"),
        rn.replace(mine.conversation_id, "conv_none"),
        rn + "x",
        rn.replace("ef:default:", "ef:a%2Fb:"),
    ]

    answers = [refused(await client.post("/by-rn", json={"rn": other}), 404) for other in others]
    answers.append(refused(await client.post("/by-rn", json={"rn": rn}, headers={"X-Dev-User": "bob"}), 404))

    assert len({str(answer) for answer in answers}) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"rn": ""},
        {"rn": None},
        {"rn": 7},
        {"rn": ["ef"]},
        {"rn": "ef:a:b"},
        {"rn": "https://x"},
        {"rn": "ef:" + "x" * 9000},
        [],
        "x",
    ],
)
async def test_what_is_no_rn_is_422_and_the_field_is_named(
    client: httpx2.AsyncClient, refused: Refused, body: Any
) -> None:
    problem = refused(await client.post("/by-rn", json=body), 422)

    assert problem["errors"][0]["field"] == "rn"


async def test_more_fields_are_422(client: httpx2.AsyncClient, file: dict[str, Any], refused: Refused) -> None:
    refused(await client.post("/by-rn", json={"rn": file["rn"], "tenant": "other"}), 422)


async def test_a_call_without_credential_is_refused_before_the_body_is_read(
    client: httpx2.AsyncClient, refused: Refused
) -> None:
    refused(await client.post("/by-rn", content=b"{", headers={"Origin": "http://evil.example"}), 403)
    refused(await client.post("/by-rn", content=b"{", headers={"Authorization": "Bearer x.y.z"}), 401)

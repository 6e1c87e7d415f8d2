"""The schemas that the ingress prints, and the web client's types generated from them."""

import hashlib
import json

import pytest

from everturn_local.settings import REPOSITORY
from ingress.__main__ import main

TYPES = REPOSITORY / "clients" / "web" / "src" / "api" / "generated" / "wire.ts"
REMEDY = "run `npm run make-types` in clients/web and commit what it writes"


def test_the_description_holds_the_schemas_of_calls_and_events(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["describe"])

    described = json.loads(capsys.readouterr().out)
    assert status == 0
    assert {"FetchIn", "AcceptedOut", "Problem"} <= set(described["calls"])
    assert len(described["events"]["Event"]["oneOf"]) > 10


def test_the_web_clients_types_are_those_of_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    main(["describe"])
    schemas = hashlib.sha256(capsys.readouterr().out.encode()).hexdigest()
    _, made_from, says, types = TYPES.read_text().split("\n", 3)

    assert made_from == f"// Schemas {schemas}", REMEDY
    assert says == f"// Types {hashlib.sha256(types.encode()).hexdigest()}", REMEDY

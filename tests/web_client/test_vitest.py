"""The web client's own tests, which are written in TypeScript and lie beside its sources."""

from everturn_local.web.client import WebClient


async def test_the_web_clients_own_tests_pass(web_client: WebClient) -> None:
    output = await web_client.test()

    assert "passed" in output
    assert "failed" not in output.rpartition("Test Files")[2]

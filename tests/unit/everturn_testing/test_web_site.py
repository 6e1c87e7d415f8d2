import asyncio

from everturn_testing.web_site import open_site


async def test_a_site_serves_its_pages_and_records_requests() -> None:
    async with open_site() as site:
        site.page("/a", "hello", "text/plain")
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"GET /a?b=1 HTTP/1.1\r\nHost: site.test\r\n\r\n")

        answer = await reader.read()

        writer.close()
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"hello")
    assert site.asked[0].startswith("GET /a?b=1")

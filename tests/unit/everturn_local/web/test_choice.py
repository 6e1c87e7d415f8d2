"""Which page `make run` has."""

from pathlib import Path

from everturn_local.web.choice import choose_web, open_web_client


async def test_an_existing_page_is_used() -> None:
    choice = await choose_web({"WEB_DIST": "/built"}, report=print)

    assert (choice.dist, choice.why) == (Path("/built"), "WEB_DIST is set")
    assert choice.env == {"WEB_DIST": "/built"}


def test_the_client_of_this_checkout_is_worked_on_with_our_node() -> None:
    assert open_web_client(print).node.program.is_file()

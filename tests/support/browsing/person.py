"""A user of the web client in a real browser: finds elements by what is visible or read out."""

import asyncio
import re
from dataclasses import dataclass, field

from playwright.async_api import Dialog, Locator, Page, expect

INDEX_LIMIT_S = 120
MAX_TABS = 300
"""All tests share one platform, so the list of conversations, which is on the way, may be long."""


@dataclass
class Person:
    """`alarms` are what a page must never do: open dialogs, or fail in a script."""

    page: Page
    url: str
    alarms: list[str] = field(default_factory=list[str])

    def watch(self) -> None:
        """Record alarms from now on."""
        self.page.on("pageerror", lambda error: self.alarms.append(f"error: {error}"))
        self.page.on("dialog", self._note_dialog)

    async def open(self) -> None:
        """The page where a conversation begins."""
        await self.page.goto(self.url)
        await self.field.wait_for()

    async def open_tab(self) -> "Person":
        """The same person in another tab, at the same address."""
        other = Person(await self.page.context.new_page(), self.page.url, self.alarms)
        other.watch()
        await other.open()
        return other

    async def wear_out(self, scope: str) -> None:
        """From now on this tab has a credential for `tenant/project` that the server no longer accepts."""
        await self.page.evaluate("scope => sessionStorage.setItem(`everturn.credential.${scope}`, 'worn-out')", scope)
        await self.page.reload()
        await expect(self.page.get_by_role("heading", name="Sign in to Everturn")).to_be_visible()

    async def look(self) -> None:
        """At this tab: a browser draws no other."""
        await self.page.bring_to_front()

    async def send(self, text: str) -> None:
        """Until the server has accepted it."""
        await self.offer(text)
        await expect(self.field).to_have_value("")

    async def offer(self, text: str) -> None:
        """Sends what may be refused."""
        await self.field.fill(text)
        await self.field.press("Enter")

    async def attach(self, name: str, data: bytes, mime: str = "text/csv") -> None:
        chosen = {"name": name, "mimeType": mime, "buffer": data}
        await self.page.get_by_label("Files to attach").set_input_files(files=[chosen])

    async def finish(self) -> None:
        """Wait until nothing is running any more."""
        await expect(self.button("Send")).to_be_visible()

    async def tab_to(self, target: Locator) -> None:
        """With the Tab key alone. Fails if the key doesn't reach it."""
        for _ in range(MAX_TABS):
            if await target.count() == 1 and await target.evaluate("element => element === document.activeElement"):
                return
            await self.page.keyboard.press("Tab")
        raise AssertionError(f"{MAX_TABS} presses of Tab do not come to {target}")

    async def read_conversation_id(self) -> str:
        """Waits until the address names the conversation."""
        await self.page.wait_for_url(re.compile("conv_"))
        found = re.search(r"conv_[0-9A-Za-z_-]+", self.page.url)
        assert found is not None
        return found[0]

    async def show_list(self) -> None:
        """Opens the list of conversations where it is a drawer."""
        if await self.button("Show conversations").is_visible():
            await self.button("Show conversations").click()

    async def search(self, words: str) -> Locator:
        """Writes into the search of the list. Returns what it finds in messages."""
        await self.page.get_by_role("searchbox", name="Search conversations").fill(words)
        return self.page.get_by_role("region", name="In messages").get_by_role("link")

    async def wait_for_index(self, words: str, count: int = 1) -> None:
        """Until so many messages can be found by these words: an ended turn is indexed beside the turns that run."""
        async with asyncio.timeout(INDEX_LIMIT_S):
            while await self._count_found(words) < count:  # noqa: ASYNC110 - there is no event for a worker's index
                await asyncio.sleep(0.2)

    async def _count_found(self, words: str) -> int:
        address = f"{self.url.partition('#')[0]}conversations/default/default/search"
        answer = await self.page.request.post(address, data={"query": words, "mode": "lexical", "limit": 50})
        return len((await answer.json())["items"])

    @property
    def field(self) -> Locator:
        return self.page.get_by_role("textbox", name="Your message", exact=True)

    @property
    def reply(self) -> Locator:
        """All of the last turn but what the person said."""
        return self.page.get_by_role("group", name="Reply", exact=True).last

    @property
    def turns(self) -> Locator:
        return self.page.get_by_role("article")

    @property
    def messages(self) -> Locator:
        """The list of turns, which scrolls."""
        return self.page.get_by_role("region", name="Messages")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    async def _note_dialog(self, dialog: Dialog) -> None:
        self.alarms.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

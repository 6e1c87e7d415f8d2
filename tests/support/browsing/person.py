"""A person before the web client in a real browser: finds things by what is seen or read out."""

import re
from dataclasses import dataclass, field

from playwright.async_api import Dialog, Locator, Page


@dataclass
class Person:
    """`alarms` are what a page must never do: open dialogs, or fail in a script."""

    page: Page
    url: str
    alarms: list[str] = field(default_factory=list[str])

    def watch(self) -> None:
        """Note alarms from now on."""
        self.page.on("pageerror", lambda error: self.alarms.append(f"error: {error}"))
        self.page.on("dialog", self._note_dialog)

    async def open(self) -> None:
        """The page where a conversation begins."""
        await self.page.goto(self.url)
        await self.field.wait_for()

    async def send(self, text: str) -> None:
        await self.field.fill(text)
        await self.field.press("Enter")

    async def attach(self, name: str, data: bytes, mime: str = "text/csv") -> None:
        chosen = {"name": name, "mimeType": mime, "buffer": data}
        await self.page.get_by_label("Files to attach").set_input_files(files=[chosen])

    async def read_conversation_id(self) -> str:
        """Waits until the address names the conversation."""
        await self.page.wait_for_url(re.compile("conv_"))
        found = re.search(r"conv_[0-9A-Za-z_-]+", self.page.url)
        assert found is not None
        return found[0]

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

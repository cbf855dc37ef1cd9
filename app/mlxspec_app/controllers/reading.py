"""Actions on a message: copy it, copy its code, render it as Markdown, unfold its reasoning."""

from collections.abc import Callable

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import Page
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.text.code_blocks import code_block_at, code_blocks


class MessageReader:
    """Acts on the message under the cursor, else on the last reply."""

    def __init__(self, feed: Feed, page: Page, copy: Callable[[str, str], None]) -> None:
        """`copy` copies its first argument, or shows the second one if the first is empty."""
        self._feed, self._page, self._copy = feed, page, copy

    @property
    def message(self) -> Message | None:
        """The message under the cursor, else the last reply."""
        return self._page.transcript.pointed_message or self._feed.state.reply

    def copy_message(self) -> None:
        message = self.message
        self._copy(message.text if message is not None else "", "there is no reply to copy yet")

    def copy_code(self) -> None:
        """Copy the code block under the cursor, else the last one of any reply."""
        pointed = self._page.transcript.pointed_message
        if pointed is not None:
            block = code_block_at(pointed.text, self._page.transcript.pointed_character)
            self._copy(block, "this message has no code block")
            return
        replies = (m.text for m in reversed(self._feed.state.messages) if isinstance(m, Reply))
        blocks = next(filter(None, map(code_blocks, replies)), [""])
        self._copy(blocks[-1], "no reply has a code block yet")

    def toggle_reasoning(self) -> None:
        message = self.message
        if not isinstance(message, Reply) or not self._page.transcript.toggle_reasoning(message):
            self._page.notify("this reply has no reasoning to show", timeout=3)

    def toggle_markdown(self) -> None:
        """Switch the reply between rendered Markdown and its exact text."""
        message = self.message
        if not isinstance(message, Reply) or not message.text:
            self._page.notify("there is no reply to render here", timeout=3)
        else:
            self._page.transcript.toggle_rendered(message)

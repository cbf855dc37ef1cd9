"""A screen with a conversation to read: its messages can be copied and rendered."""

from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.screens.commanded import CommandedScreen
from mlxspec_app.text.code_blocks import code_block_at, code_blocks
from mlxspec_app.widgets.chat.transcript import Transcript


class ReadingScreen(CommandedScreen):
    """Acts on the message pointed at in the transcript, else on the last reply."""

    @property
    def message(self) -> Message | None:
        """The message pointed at, else the last reply."""
        return self.query_one(Transcript).pointed_message or self.state.reply

    def action_copy_message(self) -> None:
        message = self.message
        self.copy(message.text if message is not None else "", "there is no reply to copy yet")

    def action_copy_code(self) -> None:
        transcript = self.query_one(Transcript)
        pointed = transcript.pointed_message
        if pointed is not None:
            block = code_block_at(pointed.text, transcript.pointed_character)
            self.copy(block, "this message holds no block of code")
            return
        replies = (m.text for m in reversed(self.state.messages) if isinstance(m, Reply))
        blocks = next(filter(None, map(code_blocks, replies)), [""])
        self.copy(blocks[-1], "no reply holds a block of code yet")

    def action_toggle_markdown(self) -> None:
        message = self.message
        if not isinstance(message, Reply) or not message.text:
            self.notify("there is no reply to render here", timeout=3)
        elif not message.is_finished:
            self.notify("a reply can be rendered when it has ended", timeout=3)
        else:
            self.run_worker(self.query_one(Transcript).toggle_rendered(message))

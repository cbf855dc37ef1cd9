"""A page without Textual: what a controller asks of a screen, noted instead of shown."""

from concurrent.futures import Future

from mlxspec_app.settings.file import Settings


class FakePrompt:
    """Holds a text."""

    def __init__(self):
        self.text = self.purpose = self.chat = ""
        self.has_focus = False

    def fill(self, text):
        self.text = text

    def restore(self, text):
        self.text = "\n".join(part for part in (text, self.text) if part)

    def set_aside(self):
        self.text = ""

    def show_purpose(self, purpose):
        self.purpose = purpose

    def show_chat(self, title):
        self.chat = title

    def focus(self):
        self.has_focus = True


class FakeTranscript:
    """Notes what is to be seen; a test points at a message."""

    def __init__(self):
        self.pointed_message, self.pointed_character = None, 0
        self.seen, self.versions, self.rendered = [], {}, []

    def follow(self):
        self.seen.append("end")

    def show_message(self, message):
        self.seen.append(message)

    def show_versions(self, versions):
        self.versions = versions

    def toggle_rendered(self, reply):
        self.rendered.append(reply)


class FakeChoices:
    """Settings, and the changes that were asked for."""

    def __init__(self, **chosen):
        self.settings, self.changes = Settings(**chosen), []

    def change(self, name, value):
        self.changes.append((name, value))


class FakePage:
    """A page that notes what it is told. What runs beside it waits for `settle`."""

    def __init__(self, **chosen):
        self.prompt, self.transcript = FakePrompt(), FakeTranscript()
        self.choices = FakeChoices(**chosen)
        self.told, self.offered, self.refused, self.overviews = [], [], [], []
        self.impossible = set()
        self.num_orders = 0
        self._beside = []

    def notify(self, message, *, title="", severity="information", timeout=None):
        self.told.append(message)

    def run_beside(self, work, *, group="default", exit_on_error=True, exclusive=False):
        if exclusive:
            self._beside = [item for item in self._beside if item[0] != group]
        self._beside.append((group, work))

    async def settle(self):
        """Run what runs beside the page, and what that begins."""
        while self._beside:
            await self._beside.pop(0)[1]()

    def after_order(self):
        self.num_orders += 1

    def refresh_bindings(self):
        pass

    def call_after_refresh(self, callback):
        callback()

    def show_chats(self, chats):
        self.overviews.append(chats)

    def check_action(self, action, parameters):
        return action not in self.impossible

    def offer(self, line):
        self.offered.append(line)

    def refuse(self, line, reason):
        self.told.append(reason)
        self.refused.append(line)


class DirectStore:
    """A store that answers at once, in the thread that asks."""

    def __init__(self, recorder):
        self.recorder = recorder

    def record(self, event):
        self.recorder.apply(event)

    def submit(self, question):
        answer = Future()
        try:
            answer.set_result(question(self.recorder))
        except Exception as error:
            answer.set_exception(error)
        return answer

"""A screen without Textual: what the classes of the chat ask of it, noted instead of shown."""

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
        self.pointed_message = None
        self.seen, self.versions = [], {}

    def follow(self):
        self.seen.append("end")

    def show_message(self, message):
        self.seen.append(message)

    def show_versions(self, versions):
        self.versions = versions


class FakeApp:
    """Settings, the changes that were asked for, and the screens that were opened."""

    def __init__(self, **chosen):
        self.settings, self.changes, self.opened = Settings(**chosen), [], []

    def change(self, name, value):
        self.changes.append((name, value))

    def push_screen(self, screen, then=None):
        self.opened.append(screen)


class FakePage:
    """A screen that notes what it is told. What runs beside it waits for `settle`."""

    def __init__(self, **chosen):
        self.prompt, self.transcript = FakePrompt(), FakeTranscript()
        self.app = FakeApp(**chosen)
        self.told, self.overviews = [], []
        self._beside = []

    def notify(self, message, *, title="", severity="information", timeout=None):
        self.told.append(message)

    def run_beside(self, work, *, group="default", exclusive=False):
        if exclusive:
            self._beside = [item for item in self._beside if item[0] != group]
        self._beside.append((group, work))

    async def settle(self):
        """Run what runs beside the page, and what that begins."""
        while self._beside:
            await self._beside.pop(0)[1]()

    def query_one(self, kind):
        return {"Prompt": self.prompt, "Welcome": self}[kind.__name__]

    def show_now(self):
        pass

    def refresh_bindings(self):
        pass

    def call_after_refresh(self, callback):
        callback()

    def show_chats(self, chats):
        self.overviews.append(chats)


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

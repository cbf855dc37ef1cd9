"""A live session over a fake conversation, for tests of the engine thread."""

import threading
import time

from mlxspec.params import GenerationParams
from mlxspec.trace.difference import Proof
from mlxspec.trace.events import Alternative, GenerationFinished
from mlxspec_app.conversation.events import ModelChoice, SessionReady
from mlxspec_app.conversation.orders import Load, Say
from mlxspec_app.sessions.engine_session import EngineSession
from tests.traces import make_fake

PATIENCE_S = 30
PARAMS = GenerationParams(seed=7)


class FakeConversation:
    """Answers each message with a recorded reply, one event at a time."""

    def __init__(self, on_progress):
        self.threads = {threading.get_ident()}
        self.gate = threading.Semaphore(1_000_000)
        self.said = []
        self.kept = []
        self.turns = []
        self.reply_tokens = []
        self.system = None
        self.forgets_oldest = False
        self.num_forgotten = 0
        self.error = None
        on_progress(49, 98)

    def reply(self, text, params, *, should_stop=lambda: False):
        self.threads.add(threading.get_ident())
        self.said.append((text, params))
        if self.error is not None:
            raise self.error
        return self._events(text, should_stop)

    def regenerate(self, params, *, should_stop=lambda: False):
        self.said.append(("again", params))
        return self._events(self.said[0][0], should_stop)

    def prove(self, *, should_stop, on_progress):
        if self.error is not None:
            raise self.error
        on_progress(1, 2)
        return Proof(2, 2)

    def alternatives(self, turn, position):
        if self.error is not None:
            raise self.error
        return [Alternative(5, " sea", 0.5, 0.75), Alternative(6, " lake", 0.25, 0.25)]

    def branch(self, turn, position, token, params, *, should_stop):
        if self.error is not None:
            raise self.error
        self.said.append(("branch", turn, position, token, params))
        return self._events("again", should_stop)

    def resume(self, params, *, should_stop):
        if self.error is not None:
            raise self.error
        self.said.append(("on", params))
        return self._events(self.said[0][0], should_stop)

    def race(self, text, params, *, should_stop):
        if self.error is not None:
            raise self.error
        self.said.append(("race", params))
        return ((run, event) for run in (0, 1) for event in self._events(text, should_stop))

    def keep_rows(self, label, *, should_stop):
        if self.error is not None:
            raise self.error
        self.kept.append((label, should_stop()))

    def reset(self):
        self.said.clear()
        self.turns.clear()

    def restore(self, turns, system=None, tokens=()):
        self.turns, self.reply_tokens = list(turns), list(tokens)
        self.system = system

    def cut(self, num_turns):
        del self.turns[num_turns:]

    def _events(self, text, should_stop):
        for event in make_fake.FakeEngine().reply(text, make_fake.PROSE):
            self.gate.acquire()
            if should_stop():
                yield GenerationFinished(getattr(event, "ts", 0.0), "cancelled")
                return
            yield event


class FakeModels:
    """Opens a fake conversation, or what a test wants opened."""

    def __init__(self, open_conversation=lambda choice, progress: FakeConversation(progress)):
        self.conversation, self._open = None, open_conversation

    def open_conversation(self, choice, on_progress):
        self.conversation = self._open(choice, on_progress)
        return self.conversation

    def change_drafter(self, choice, on_progress):
        pass

    def note_reply(self, speedup, is_sampled):
        return ""

    def release(self):
        pass


class Live:
    """A started session and the conversation inside it."""

    def __init__(self, trace=None, models=None, choice="t"):
        self.models = models or FakeModels()
        self.session = EngineSession(self.models, PARAMS, trace, choice=ModelChoice(choice, ""))
        self.news = []
        self.session.start()

    @property
    def conversation(self):
        return self.models.conversation

    def until(self, condition):
        """Drain until an event is found and return it."""
        deadline = time.monotonic() + PATIENCE_S
        checked = 0
        while time.monotonic() < deadline:
            self.news += self.session.drain()
            for event in self.news[checked:]:
                checked += 1
                if condition(event):
                    return event
            time.sleep(0.001)
        raise AssertionError(f"waited in vain; got {self.news[-3:]}")

    def say(self, text):
        """Say something, and return the end of the reply."""
        self.session.send(Say(text))
        return self.until_a(GenerationFinished)

    def load(self, model, drafter=""):
        """Load other models, and wait until models are loaded."""
        self.session.send(Load(ModelChoice(model, drafter)))
        self.until_a(SessionReady)

    def until_a(self, *kinds):
        self.news = []
        return self.until(lambda event: isinstance(event, kinds))

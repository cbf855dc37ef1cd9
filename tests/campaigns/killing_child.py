"""A chat that tells all it does, to be killed: `killing_child.py FOLDER MODEL SEED ACT`.

The engine, the store, the settings, the learned table and the kept costs are the real ones; only
the screen is left out. What is about to be done is told first and what finished afterwards, so
that a reader of standard output knows what has to be on the disk at any moment. ACT is done more
often than all else. Files that the chat writes seldom are written after every reply here.
"""

import json
import random
import sys
import time
from pathlib import Path

from mlxspec.drafters.table import memory
from mlxspec.drafting import measured
from mlxspec.trace.events import DraftVerified, GenerationFinished, PlainDecoded
from mlxspec_app.conversation.events import ChatOpened, SessionFailed, SessionNotice, SessionReady
from mlxspec_app.conversation.orders import NewChat, OpenChat, Regenerate, Say, Stop
from mlxspec_app.store.restore import restore
from mlxspec_app.user_data import find_user_data
from mlxspec_cli.arguments import generation_params
from mlxspec_cli.commands import chat
from mlxspec_cli.parser import build_parser

PATIENCE_S = 600.0
SETTINGS = ("sampling.max_tokens", "sampling.top_k", "frame_rate")
WEIGHTS = {"say": 8, "again": 3, "stop": 3, "new": 3, "switch": 3, "rename": 2, "delete": 1}
WEIGHTS |= {"fork": 1, "setting": 3}


def tell(what, **more):
    print(json.dumps({"what": what} | more), flush=True)


class Chat:
    """One run of the chat."""

    def __init__(self, folder, model, seed):
        arguments = ["chat", "--data-dir", str(folder), "--model", model, "--drafter", "pool"]
        args = build_parser().parse_args([*arguments, "--temp", "1", "--max-tokens", "40"])
        self.user_data = find_user_data(folder)
        chosen = chat.filled_in(args, self.user_data.settings)
        self.session = chat._session(chosen, generation_params(chosen))
        self.draw = random.Random(seed)
        self.shown = self.reason = ""
        for notice in self.user_data.notices:
            tell("notice", text=notice)
        self.user_data.store_chats_of(self.session)
        self.session.start()
        self.until(SessionReady)
        tell("ready")

    def until(self, kind=GenerationFinished, *, rounds=-1):
        """Take in what happens up to an event, or up to so many rounds of a reply."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for event in self.session.drain():
                self.take_in(event)
                rounds -= isinstance(event, DraftVerified | PlainDecoded)
                if isinstance(event, kind) or rounds == 0:
                    deadline = 0.0  # once the others are taken in too
            time.sleep(0.0005)
        assert deadline == 0.0, f"waited in vain for {kind}"

    def take_in(self, event):
        match event:
            case DraftVerified() | PlainDecoded():
                self.shown += "".join(token.text for token in event.emit)
                tell("shown", text=self.shown)
            case GenerationFinished():
                self.shown, self.reason = self.shown + event.text, event.reason
                tell("finished", text=self.shown)
            case SessionNotice():
                tell("notice", text=event.message)
            case SessionFailed():
                raise AssertionError(event.traceback)
        self.user_data.record(event)

    def ask(self, question):
        answer = self.user_data.store.submit(question)
        return answer.result(PATIENCE_S)

    def act(self, weights):
        (name,) = self.draw.choices([*weights], [*weights.values()])
        getattr(self, name)()

    def say(self, *, stops=False):
        text = f"{self.draw.choice(('Tell me', 'Why is', 'ü 你'))} {self.draw.random():.4f}"
        tell("saying", text=text)
        self.session.send(Say(text))
        self.reply(text, stops=stops)

    def stop(self):
        self.say(stops=True)

    def again(self):
        path = self.ask(lambda recorder: recorder.path())
        if path and path[-1].role == "assistant":
            tell("again", text=path[-2].text)
            self.session.send(Regenerate())
            self.reply(path[-2].text)

    def reply(self, turn: str, *, stops=False):
        self.shown = ""
        self.reason = ""
        if stops:
            self.until(rounds=self.draw.randrange(1, 5))
            self.session.send(Stop())
        if not self.reason:
            self.until()
        chat, numbers = self.ask(lambda keeper: (keeper.chat, [m.id for m in keeper.path()[-2:]]))
        facts = {"chat": chat, "messages": numbers, "reason": self.reason}
        tell("kept", turn=turn, text=self.shown, **facts)

    def new(self):
        tell("new")
        self.session.send(NewChat())
        self.rest()

    def switch(self):
        tell("switching")
        self.open(lambda recorder: recorder.find_last())

    def fork(self):
        if self.ask(lambda recorder: recorder.path()):
            tell("forking")
            self.open(lambda recorder: recorder.fork_at(0))

    def open(self, find):
        found = self.ask(find)
        if found is not None:
            messages = restore(found.path, self.user_data.paths.traces)
            leaf = found.path[-1].id if found.path else None
            chat_opened = ChatOpened(messages, found.chat.system, found.chat.id, leaf)
            self.session.send(OpenChat(chat_opened))
            self.until(ChatOpened)
        self.rest()

    def rename(self):
        number = self.ask(lambda recorder: recorder.chat)
        if number is None:
            return
        title = f"chat {self.draw.random():.4f}"
        tell("renaming", chat=number, title=title)
        self.ask(lambda recorder: recorder.writer.rename(number, title))
        tell("renamed", chat=number, title=title)

    def delete(self):
        chats = self.ask(lambda recorder: [row.chat for row in recorder.writer.recent()])
        now = self.ask(lambda recorder: recorder.chat)
        others = [number for number in chats if number != now]
        if not others:
            return
        number = self.draw.choice(others)
        tell("deleting", chat=number)
        self.ask(lambda recorder: recorder.writer.delete(number))
        tell("deleted", chat=number)
        if self.draw.random() < 0.5:
            tell("undeleting", chat=number)
            self.ask(lambda recorder: recorder.writer.undelete(number))
            tell("undeleted", chat=number)

    def setting(self):
        name, value = self.draw.choice(SETTINGS), self.draw.randrange(1, 60)
        tell("setting", name=name, value=value)
        self.user_data.change(name, value)
        self.user_data.write_settings()
        tell("set", name=name, value=value)

    def rest(self):
        """Let the session and the store carry out what they were told."""
        while self.session.busy:
            time.sleep(0.0005)
        for event in self.session.drain():
            self.take_in(event)
        self.ask(lambda recorder: None)

    def close(self):
        tell("closing")
        self.session.close()
        self.user_data.close()


def main():
    memory._SECONDS_BETWEEN = 0.0
    measured._WORTH_KEEPING_MS = 0.0
    folder, model, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    running = Chat(folder, model, seed)
    weights = WEIGHTS | {sys.argv[4]: 8}
    for _ in range(running.draw.randrange(5, 30)):
        running.act(weights)
    running.close()
    tell("closed")


if __name__ == "__main__":
    main()

"""Any sequence of changes leaves every chat a tree, its leaf at the end, and the search true."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mlxspec_app.store.reader import stored_branches
from mlxspec_app.store.records import Generation
from tests.support.store_files import edit, messages_of, open_writer

WORDS = ("alpha", "beta", "gamma", "délta", "世界")
PICK = st.integers(min_value=0, max_value=10**6)
WORD = st.sampled_from(WORDS)


@dataclass
class Said:
    """What the store should hold about a message."""

    chat: int
    parent: int | None
    text: str
    is_open: bool = False


def pick(number, among):
    return among[number % len(among)]


class StoreMachine(RuleBasedStateMachine):
    """The store against dictionaries that hold the same."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "chats.sqlite3"
        self.writer = open_writer(self.path)
        self.said = {}
        self.leaves = {}
        self.deleted = set()

    def teardown(self):
        self.writer.close()
        self.folder.cleanup()

    def shown(self):
        return [chat for chat in self.leaves if chat not in self.deleted]

    def messages(self):
        return [m for m, said in self.said.items() if said.chat in self.shown()]

    def open_replies(self):
        return [m for m, said in self.said.items() if said.is_open]

    def add(self, message, chat, parent, text, is_open=False):
        self.said[message] = Said(chat, parent, text, is_open)
        self.leaves[chat] = message

    @rule()
    def new_chat(self):
        self.leaves[self.writer.new_chat()] = None

    @precondition(lambda self: self.shown())
    @rule(number=PICK, text=WORD)
    def say(self, number, text):
        chat = pick(number, self.shown())
        leaf = self.leaves[chat]
        self.add(self.writer.add_message(chat, leaf, "user", text), chat, leaf, text)

    @precondition(lambda self: self.messages())
    @rule(number=PICK, text=WORD)
    def edit(self, number, text):
        message = pick(number, self.messages())
        said = self.said[message]
        self.add(edit(self.writer, message, text), said.chat, said.parent, text)

    @precondition(lambda self: self.messages())
    @rule(number=PICK)
    def begin_reply(self, number):
        parent = pick(number, self.messages())
        chat = self.said[parent].chat
        self.add(self.writer.begin_reply(chat, parent, Generation()), chat, parent, "", True)

    @precondition(lambda self: self.open_replies())
    @rule(number=PICK, text=WORD)
    def extend(self, number, text):
        message = pick(number, self.open_replies())
        self.writer.extend_reply(message, text + " ")
        self.said[message].text += text + " "

    @precondition(lambda self: self.open_replies())
    @rule(number=PICK)
    def finish(self, number):
        message = pick(number, self.open_replies())
        self.writer.finish_reply(message, "finished")
        self.said[message].is_open = False

    @precondition(lambda self: self.messages())
    @rule(number=PICK)
    def switch(self, number):
        message = pick(number, self.messages())
        chat = self.said[message].chat
        self.leaves[chat] = self.writer.switch_to(message)
        assert message in self.ancestry(self.leaves[chat])

    @precondition(lambda self: self.messages())
    @rule(number=PICK)
    def fork(self, number):
        message = pick(number, self.messages())
        chat = self.writer.fork(message)
        parent = None
        copies = messages_of(self.writer, chat)
        for original, copy in zip(self.ancestry(message), copies, strict=True):
            self.add(copy.id, chat, parent, self.said[original].text)
            parent = copy.id

    @precondition(lambda self: self.shown())
    @rule(number=PICK)
    def delete(self, number):
        chat = pick(number, self.shown())
        self.writer.delete(chat)
        self.deleted.add(chat)

    @precondition(lambda self: self.deleted)
    @rule(number=PICK)
    def undelete(self, number):
        chat = pick(number, sorted(self.deleted))
        self.writer.undelete(chat)
        self.deleted.discard(chat)

    @rule()
    def end_the_session_and_start_again(self):
        self.writer.purge()
        self.writer.close()
        for chat in self.deleted:
            del self.leaves[chat]
        self.said = {m: s for m, s in self.said.items() if s.chat not in self.deleted}
        self.deleted.clear()
        self.writer = open_writer(self.path)
        self.writer.fold_pieces()

    def ancestry(self, message):
        path = []
        while message is not None:
            path.insert(0, message)
            message = self.said[message].parent
        return path

    @invariant()
    def every_chat_is_the_tree_it_should_be(self):
        for chat, leaf in self.leaves.items():
            kept = {m.id: (m.parent, m.text) for m in messages_of(self.writer, chat)}
            expected = {m: (s.parent, s.text) for m, s in self.said.items() if s.chat == chat}
            assert kept == expected
            path = [message.id for message in self.writer.path(chat)]
            assert path == ([] if leaf is None else self.ancestry(leaf))

    @invariant()
    def the_list_shows_what_is_not_deleted(self):
        counts = {entry.chat: int(entry.note.split()[0]) for entry in self.writer.recent()}
        assert counts == {
            chat: 0 if self.leaves[chat] is None else len(self.ancestry(self.leaves[chat]))
            for chat in self.shown()
        }

    @invariant()
    def every_branch_that_is_not_deleted_is_told_whole(self):
        parents = {said.parent for said in self.said.values()}
        leaves = [message for message in sorted(self.messages()) if message not in parents]
        found = self.writer.branches(10_000)
        assert [[text for _, text in branch] for branch in found] == [
            [self.said[message].text for message in self.ancestry(leaf)] for leaf in leaves
        ]
        assert stored_branches(self.path, 10_000) == found
        newest = sum(len(text) for _, text in found[-1]) if found else 0
        assert self.writer.branches(newest) == found[-1:]

    @invariant()
    def search_finds_what_is_there_and_nothing_else(self):
        for word in WORDS:
            found = {hit.message for hit in self.writer.search(word, 1_000)}
            there = {m for m, s in self.said.items() if word in s.text and s.chat in self.shown()}
            still_written = set(self.open_replies())
            assert found - still_written == there - still_written


StoreMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=25)
test_any_sequence_of_changes_keeps_the_store_true = StoreMachine.TestCase

"""Drafts copy from the stored chats, unless nothing may be learned."""

import threading

import pytest

from mlxspec_app.conversation.events import ModelChoice
from mlxspec_app.store.reader import stored_branches
from mlxspec_app.user.paths import find_paths
from mlxspec_cli.chat_models import SessionModels
from mlxspec_cli.parser import build_parser
from tests.support.chat_folders import save_chat_folder
from tests.support.drafting import KEY
from tests.support.store_files import open_writer, say

REPLY = "a long reply that is said once more on another day"


@pytest.fixture
def earlier_of(tmp_path):
    """What the drafters of a session know of the stored chats, one of which is deleted."""
    writer = open_writer(find_paths(tmp_path).store)
    say(writer, writer.new_chat(), "Say it", REPLY)
    deleted = writer.new_chat()
    say(writer, deleted, "Say it", REPLY[::-1])
    writer.delete(deleted)
    writer.close()
    folder = str(save_chat_folder(tmp_path / "toy"))

    def open_session(*flags):
        args = build_parser().parse_args(["chat", "--data-dir", str(tmp_path), *flags])
        models = SessionModels(args, ModelChoice())
        models.open_conversation(ModelChoice(folder, "pool"), print)
        for thread in threading.enumerate():
            if thread.name == "mlxspec-earlier":
                thread.join()
        return models._prepared.context

    return open_session


def test_drafts_copy_from_stored_chats_and_not_from_deleted_ones(earlier_of):
    context = earlier_of("--learn")
    told, deleted = map(context.loaded.tokenizer.encode, (REPLY, REPLY[::-1]))
    assert context.earlier.find(told[4:20]).next_token == told[20]
    assert context.earlier.find(deleted[4:20]) is None
    drafter = context.engine.drafter
    drafter.start(told[:20], context.sampling, KEY)
    assert drafter.propose(told[19], 4).tree.lists()[0] == told[19:24]


def test_nothing_is_read_where_nothing_may_be_learned(earlier_of):
    context = earlier_of("--no-learn")
    told = context.loaded.tokenizer.encode(REPLY)
    assert context.earlier.find(told[4:20]) is None


def test_a_store_that_cannot_be_read_gives_no_texts(tmp_path):
    assert stored_branches(tmp_path / "none.sqlite3", 1000) == []
    (tmp_path / "other").write_text("not a store")
    assert stored_branches(tmp_path / "other", 1000) == []
    assert not (tmp_path / "none.sqlite3").exists()

"""The thread that keeps the chat: it blocks nobody, loses nothing, and its troubles are notices."""

import threading
import time

import pytest

from mlxspec.trace.events import TurnStarted
from mlxspec_app.store.database import open_for_writing
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.records import Generation
from mlxspec_app.store.thread import StoreThread
from tests.support.app_driver import Clock
from tests.support.store_files import exchange, open_reader, open_writer, texts_of

WAIT_S = 20.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def notices():
    return []


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chats.sqlite3"


@pytest.fixture
def make(path, clock, notices):
    """Make threads that end with the test, however it ends."""
    made = []

    def make_thread(path=path, say=notices.append):
        made.append(StoreThread(path, path.with_name("traces"), say, clock))
        return made[-1]

    yield make_thread
    for thread in made:
        thread.close()


@pytest.fixture
def thread(make):
    thread = make()
    thread.start()
    return thread


def ask(thread, question):
    return thread.submit(question).result(WAIT_S)


def record(thread, events):
    for event in events:
        thread.record(event)


def kept(thread):
    return texts_of(ask(thread, lambda recorder: recorder.writer.path(recorder.chat)))


def execute(thread, sql):
    ask(thread, lambda recorder: recorder.writer._connection.execute(sql).fetchall())


def test_a_question_is_answered_after_what_was_recorded_before(thread, notices):
    record(thread, exchange("Hello", *("x",) * 100))
    assert kept(thread) == ["Hello", "x" * 100]
    assert notices == []


def test_an_error_is_raised_where_the_answer_is_awaited(thread):
    with pytest.raises(StoreError, match="chat 99 is no longer in the store"):
        ask(thread, lambda recorder: recorder.writer.chat(99))
    record(thread, exchange("Hello", "Hi"))
    assert kept(thread) == ["Hello", "Hi"]


def test_recording_never_waits_for_the_store(make):
    thread = make()
    gate = threading.Event()
    thread.submit(lambda recorder: gate.wait(WAIT_S))
    thread.start()
    start = time.perf_counter()
    record(thread, exchange("Hello", *("x",) * 1_000))
    assert time.perf_counter() - start < WAIT_S / 2
    gate.set()
    assert kept(thread) == ["Hello", "x" * 1_000]


def test_closing_writes_what_is_left(thread, path):
    record(thread, exchange("Hello", "Hi"))
    thread.close()
    thread.close()
    with open_reader(path) as reader:
        assert texts_of(reader.path(1)) == ["Hello", "Hi"]


def test_a_thread_that_never_started_can_be_closed(make, tmp_path):
    make().close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("trouble", "mend", "words"),
    [
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000", "is full"),
        ("PRAGMA query_only = ON", "PRAGMA query_only = OFF", "readonly"),
    ],
)
def test_a_refusing_disk_is_one_notice_and_nothing_is_lost(
    thread, clock, notices, trouble, mend, words
):
    record(thread, exchange("Hello", "Hi"))
    execute(thread, trouble)
    record(thread, exchange("Bye " * 5_000, "Ci", "ao"))
    ask(thread, lambda recorder: None)
    assert len(notices) == 1
    assert words in notices[0]
    assert "the chat continues" in notices[0]
    execute(thread, mend)
    clock.now += 10
    record(thread, exchange("More", "Sure"))
    assert kept(thread) == ["Hello", "Hi", "Bye " * 5_000, "Ciao", "More", "Sure"]
    assert len(notices) == 2
    assert "works again" in notices[1]


def test_a_refusing_disk_is_not_tried_every_round(thread, clock):
    tries = []

    def refuse(recorder):
        def apply(event):
            tries.append(event)
            raise StoreError("full")

        recorder.apply = apply

    ask(thread, refuse)
    record(thread, exchange("Hello", *("x",) * 50))
    ask(thread, lambda recorder: None)  # a question always has it tried
    assert len(tries) == 2
    clock.now += 10
    record(thread, exchange("Bye", *("x",) * 50))
    ask(thread, lambda recorder: None)
    assert len(tries) == 4


def test_a_disk_that_has_room_again_needs_no_further_event(make, monkeypatch):
    monkeypatch.setattr("mlxspec_app.store.thread.RETRY_S", 0.0)
    mended = threading.Event()

    def tell(notice):
        if "works again" in notice:
            mended.set()

    def refuse_once(recorder):
        def refuse(event):
            del recorder.apply
            raise StoreError("full")

        recorder.apply = refuse

    thread = make(say=tell)
    thread.submit(refuse_once)
    thread.start()
    thread.record(TurnStarted("user", "Hello"))
    assert mended.wait(WAIT_S)
    assert kept(thread) == ["Hello"]


def test_a_place_that_cannot_hold_a_store_is_one_notice(make, tmp_path, notices):
    (tmp_path / "file").write_text("")
    thread = make(tmp_path / "file" / "chats.sqlite3")
    thread.start()
    record(thread, exchange("Hello", "Hi"))
    with pytest.raises(StoreError, match=r"chats cannot be saved in .*file"):
        ask(thread, lambda recorder: recorder.chat)
    (notice,) = notices
    assert "this chat is not saved" in notice


def test_a_mistake_of_our_own_ends_the_keeping_and_not_the_chat(thread, notices):
    def break_it(recorder):
        recorder.apply = None

    ask(thread, break_it)
    record(thread, exchange("Hello", "Hi"))
    with pytest.raises(StoreError, match="failed: TypeError"):
        ask(thread, lambda recorder: recorder.chat)
    assert len(notices) == 1


def test_a_store_that_gets_damaged_is_said_to_be(make, path, notices):
    writer = open_writer(path)
    writer.add_message(writer.new_chat(), None, "user", "word " * 50_000)
    writer.close()
    thread = make()
    thread.start()
    ask(thread, lambda recorder: None)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    execute(thread, "PRAGMA shrink_memory")
    with pytest.raises(StoreError, match="damaged"):
        ask(thread, lambda recorder: recorder.writer.message(1))
    record(thread, exchange("Hello", "Hi"))
    with pytest.raises(StoreError, match="damaged"):
        ask(thread, lambda recorder: None)
    thread.close()
    assert "damaged" in notices[0]
    assert "this chat is not saved" in notices[0]
    assert open_for_writing(path, notices.append).execute("SELECT count(*) FROM chat")
    assert "a new one was begun" in notices[-1]


def test_another_window_that_holds_the_store_is_waited_for(thread, path, notices):
    ask(thread, lambda recorder: None)
    other = open_writer(path)
    with other.transaction():
        other.new_chat("Other")
        record(thread, exchange("Hello", "Hi"))
        time.sleep(0.05)
    assert kept(thread) == ["Hello", "Hi"]
    assert notices == []
    other.close()


def test_pieces_left_by_a_killed_process_are_text_after_the_next_start(make, path):
    writer = open_writer(path)
    reply = writer.begin_reply(writer.new_chat("Chat"), None, Generation())
    writer.extend_reply(reply, "needle")
    writer.close()
    thread = make()
    thread.start()
    hits = ask(thread, lambda recorder: recorder.writer.search("needle"))
    assert [hit.title for hit in hits] == ["Chat"]

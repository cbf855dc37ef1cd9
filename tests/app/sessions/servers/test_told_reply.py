"""Events from the chunks of other servers: rounds where they tell them, and nothing more."""

from mlxspec.trace.events import (
    DraftProposed,
    DraftVerified,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    text_of,
)
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.sessions.servers.items import FiguresTold
from mlxspec_app.sessions.servers.told_reply import ToldReply


def chunk(text="", *, finish=None, field="content", **more):
    choice = {"delta": {field: text} if text else {}, "finish_reason": finish}
    return {"id": "chatcmpl-abc", "model": "small", "choices": [choice], **more}


def counted(text, written, drafted=0, accepted=0, **more):
    timings = {"predicted_n": written, "prompt_n": 7, "cache_n": 3}
    if drafted:  # llama.cpp leaves both out where nothing was drafted
        timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
    return chunk(text, timings=timings, **more)


def events_of(*chunks):
    """The events of a reply whose chunks come a second apart, and the reply."""
    reply = ToldReply()
    events = [event for ts, one in enumerate(chunks) for event in reply.add(one, float(ts))]
    return [*events, *reply.end(float(len(chunks)))], reply


def kinds_of(event):
    return [token.kind for token in event.emit]


def test_rounds_are_what_the_counts_grew_by():
    events, reply = events_of(
        counted("a", 1),
        *(counted(text, 5, 3, 3) for text in "bcde"),
        *(counted(text, 7, 7, 4) for text in "fg"),
        counted("h", 8, 7, 4),
        counted("", 8, 7, 4, finish="stop"),
    )
    assert [type(event) for event in events] == [
        GenerationStarted,
        PrefillProgress,
        PlainDecoded,
        DraftProposed,
        DraftVerified,
        DraftProposed,
        DraftVerified,
        PlainDecoded,
        GenerationFinished,
    ]
    assert (events[1].total, events[1].reused) == (10, 3)
    assert kinds_of(events[4]) == ["accepted"] * 3 + ["bonus"]
    assert kinds_of(events[6]) == ["accepted", "corrected"]
    assert [node.text for node in events[5].nodes] == ["f", "", "", ""]
    assert [node.parent for node in events[5].nodes] == [0, 1, 2, 3]
    assert "".join(map(text_of, events)) == "abcdefgh"
    assert reply.whole is None
    stats = GenerationStats()
    for event in events:
        stats.add(event)
    assert (stats.generated_tokens, stats.rounds, stats.plain_forwards) == (8, 2, 2)
    assert (stats.drafted, stats.accepted) == (7, 4)


def test_a_round_is_told_when_its_last_text_is_there_and_waits_for_no_later_chunk():
    reply = ToldReply()
    for one in (counted("a", 1), counted("b", 3, 1, 1)):
        seen = list(reply.add(one, 0.0))
    assert not seen
    assert [event.t for event in reply.add(counted("c", 3, 1, 1), 0.0)] == ["draft", "verify"]


def test_tokens_that_came_without_a_text_are_counted():
    """Halves of a character have no text of their own, and neither has the end of a reply."""
    events, _ = events_of(
        counted("a", 1), counted("é", 4, 2, 2), counted("", 6, 3, 2, finish="stop")
    )
    rounds = [event for event in events if isinstance(event, DraftVerified)]
    assert [len(event.emit) for event in rounds] == [3, 2]
    assert "".join(map(text_of, events)) == "aé"


def test_counts_of_the_whole_reply_are_told_as_such():
    last = {"predicted_n": 9, "draft_n": 6, "draft_n_accepted": 4, "draft_rounds": 3}
    events, reply = events_of(chunk("a"), chunk("bc"), chunk(finish="length", timings=last))
    assert [event.t for event in events] == ["meta", "prefill", "plain", "plain", "end"]
    assert events[-1].reason == "length"
    words = "4 of 6 draft tokens accepted in 3 rounds"
    assert reply.whole == FiguresTold("abc", words, 9)


def test_counts_of_lm_studio_are_read_from_both_of_their_places():
    drafts = {"total_draft_tokens_count": 40, "accepted_draft_tokens_count": 30}
    for last in ({"stats": drafts}, {"usage": drafts}):
        _, reply = events_of(chunk("a"), chunk(finish="stop", **last))
        assert reply.whole == FiguresTold("abc", "30 of 40 draft tokens accepted", 0)


def test_a_server_that_tells_no_drafts_is_said_to_tell_none():
    _, reply = events_of(chunk("a"), chunk(finish="stop"), {"usage": {"completion_tokens": 5}})
    assert reply.whole == FiguresTold("abc", "nothing of drafts", 5)


def test_reasoning_has_its_channel_under_both_of_its_names():
    events, _ = events_of(chunk("a", field="reasoning"), chunk("b", field="reasoning_content"))
    channels = [event.emit[0].channel for event in events if isinstance(event, PlainDecoded)]
    assert channels == ["reasoning", "reasoning"]


def test_a_reply_that_was_cut_off_failed():
    events, _ = events_of(chunk("a"))
    assert isinstance(events[-1], GenerationFailed)


def test_an_empty_reply_begins_and_ends():
    events, _ = events_of(chunk(finish="stop"))
    assert [event.t for event in events] == ["meta", "prefill", "end"]


def test_what_is_no_chunk_breaks_nothing():
    strange = [
        {},
        {"choices": 5},
        {"choices": [None]},
        {"choices": [{"delta": "x", "finish_reason": []}]},
        {"id": 7, "model": None, "timings": [1], "usage": "none", "stats": 3},
        counted("a", -5, 1 << 40, 1 << 41),
        counted("b", True, "x", None),
        counted("c", 1 << 40),
        chunk(finish="stop"),
    ]
    events, _ = events_of(*strange)
    assert "".join(map(text_of, events)) == "abc"
    assert len(events) < 3000

"""The figures of replies in the words of each API: counted by hand, each number another one."""

import pytest

from mlxspec.trace.events import GenerationFinished
from mlxspec.trace.stats import GenerationStats
from mlxspec_server.apis.base import timings_of
from mlxspec_server.apis.completions import usage_of
from mlxspec_server.feed import Feed
from tests.support.served import ASKED, MODEL, engine, serving, shelf, told
from tests.support.tiny import tiny_model

FIRST = GenerationStats(
    prompt_tokens=40,
    reused_tokens=30,
    generated_tokens=20,
    reasoning_tokens=7,
    rounds=5,
    plain_forwards=3,
    drafted=13,
    accepted=12,
    accepted_prediction_tokens=4,
    rejected_prediction_tokens=2,
    prefill_s=0.5,
    total_s=2.5,
).as_dict()
SECOND = FIRST | {
    "generated_tokens": 11,
    "reasoning_tokens": 5,
    "accepted_prediction_tokens": 8,
    "rejected_prediction_tokens": 1,
}


def test_usage_counts_a_prompt_once_and_what_every_reply_to_it_wrote():
    assert usage_of([FIRST, SECOND], 1, has_prediction=True) == {
        "prompt_tokens": 40,
        "completion_tokens": 31,
        "total_tokens": 71,
        "prompt_tokens_details": {"cached_tokens": 30},
        "completion_tokens_details": {
            "reasoning_tokens": 12,
            "accepted_prediction_tokens": 12,
            "rejected_prediction_tokens": 3,
        },
    }


def test_usage_counts_each_of_several_prompts():
    longer = {"prompt_tokens": 50, "reused_tokens": 5}
    stats = [FIRST, SECOND, FIRST | longer, SECOND | longer]
    found = usage_of(stats, 2, has_prediction=False)
    cached = found["prompt_tokens_details"]["cached_tokens"]
    assert (found["prompt_tokens"], cached, found["completion_tokens"]) == (90, 35, 62)


def test_timings_tell_the_reading_of_a_prompt_from_the_writing_after_it():
    assert timings_of(FIRST, "pool") == {
        "cache_n": 30,
        "prompt_n": 10,
        "prompt_ms": 500.0,
        "prompt_per_second": 20.0,
        "predicted_n": 20,
        "predicted_ms": 2000.0,
        "predicted_per_second": 10.0,
        "draft_n": 13,
        "draft_n_accepted": 12,
        "draft_rounds": 5,
        "draft_kind": "pool",
    }


def test_the_metrics_add_up_each_figure_under_its_own_name():
    feed = Feed()
    for stats in (FIRST, SECOND):
        feed.publish("tiny", "one", GenerationFinished(0.0, "stop", stats=stats))
    feed.counts["requests"] += 1
    lines = feed.metrics({"replies_now": 2}).splitlines()
    told = dict(line.split() for line in lines if not line.startswith("#"))
    assert told == {
        "mlxspec_requests_total": "1",
        "mlxspec_refused_total": "0",
        "mlxspec_replies_total": "2",
        "mlxspec_prompt_tokens_total": "80",
        "mlxspec_cached_tokens_total": "60",
        "mlxspec_generated_tokens_total": "31",
        "mlxspec_draft_tokens_total": "26",
        "mlxspec_accepted_draft_tokens_total": "24",
        "mlxspec_drafted_rounds_total": "10",
        "mlxspec_plain_rounds_total": "6",
        "mlxspec_replies_now": "2",
    }


@pytest.fixture(scope="module")
def client():
    """A server whose context ends a little behind the prompt."""
    small = tiny_model(vocab_size=MODEL.config.vocab_size, max_position_embeddings=64)
    with serving(shelf(load_engine=lambda offer: engine(small))) as client:
        yield client


def asked(client, path, **fields):
    response = client.post(path, json={"max_tokens": 500, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def test_each_api_says_that_a_reply_has_filled_the_context(client):
    reasons = ("length", "length", "incomplete", "max_tokens")
    for (path, body), reason in zip(ASKED.items(), reasons, strict=True):
        lengths = {"max_tokens": 500, "max_output_tokens": 500}
        found = told(client.post(path, json={**body, **lengths}))
        assert found.reason == reason
        details = found.rows[0].get("incomplete_details")
        assert details == ({"reason": "max_output_tokens"} if reason == "incomplete" else None)


def test_each_api_counts_a_prompt_that_was_read_before(client):
    """Anthropic's counts the read part apart from the rest, OpenAI's as a part of all."""
    chat = {"messages": [{"role": "user", "content": "Ho"}], "max_tokens": 1}
    asked(client, "/v1/messages", **chat)
    found = asked(client, "/v1/chat/completions", **chat)
    usage, read = found["usage"], found["timings"]["prompt_n"]
    prompt, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    assert (cached, read, usage["total_tokens"]) == (prompt - 1, 1, prompt + 1)
    usage = asked(client, "/v1/messages", **chat)["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (1, cached)
    assert usage["output_tokens"] == 1
    usage = asked(client, "/v1/responses", input="Ho", max_output_tokens=1)["usage"]
    assert (usage["input_tokens"], usage["total_tokens"]) == (prompt, prompt + 1)
    assert usage["input_tokens_details"] == {"cached_tokens": cached}

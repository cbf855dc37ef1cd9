"""Every route: the text is that of the target computed anew in NumPy, streamed and not."""

import json
import math
import re
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest

from mlxspec import __version__
from mlxspec.loading import exactness
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec_server import engine_thread
from tests.support.served import (
    ASKED,
    JSON,
    LENGTH,
    MESSAGES,
    OTHER,
    TARGET,
    TOKENIZER,
    data_of,
    engine,
    serving,
    told,
    true_text,
)
from tests.support.truth import Target

TRUE = true_text(MESSAGES)
CHAT = "/v1/chat/completions"
PICTURE = {"role": "user", "content": [{"type": "input_image"}]}
USAGE = {"stream_options": {"include_usage": True}}
ENDS = dict(zip(ASKED, ("length", "length", "incomplete", "max_tokens"), strict=True))

each_way = pytest.mark.parametrize("is_streamed", [False, True])


@pytest.fixture(scope="module")
def client():
    with serving() as client:
        yield client


def post(client, path, status=200, **fields):
    response = client.post(path, json={**ASKED.get(path, {}), **fields})
    assert response.status_code == status, response.text
    return response


def chat(client, **fields):
    return post(client, CHAT, **fields).json()


def stream(client, path, **fields):
    return data_of(post(client, path, stream=True, **fields))


# ---- the text -------------------------------------------------------------------------------


@each_way
@pytest.mark.parametrize("path", ASKED)
def test_an_answer_is_the_text_of_the_target(client, path, is_streamed):
    length = {"max_tokens": LENGTH} if path == "/v1/messages" else {}
    found = told(post(client, path, stream=is_streamed, **length, **USAGE))
    truth = true_text("Hi") if path == "/v1/completions" else TRUE
    assert (found.text, found.reason, found.num_tokens) == (truth, ENDS[path], LENGTH)
    assert found.rows[0].get("model", "tiny") == "tiny"


def test_a_stream_has_the_events_of_its_api(client):
    response = post(client, CHAT, stream=True)
    assert response.text.endswith("data: [DONE]\n\n")
    rows = data_of(response)
    assert rows[0]["choices"][0]["delta"]["role"] == "assistant"
    assert not any("usage" in row for row in rows)  # it was not asked for
    kinds = [row["type"] for row in stream(client, "/v1/messages", max_tokens=3)]
    assert [kind for kind in kinds if kind != "content_block_delta"] == [
        *("message_start", "content_block_start", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    rows = stream(client, "/v1/responses")
    deltas = [row["delta"] for row in rows if row["type"] == "response.output_text.delta"]
    assert "".join(deltas) == TRUE
    assert [row["sequence_number"] for row in rows] == list(range(len(rows)))


@each_way
def test_each_prompt_of_a_list_has_its_replies_in_order(client, is_streamed):
    prompts = {"prompt": ["Once", TOKENIZER.encode("Hi")], "n": 2, "temperature": 0}
    response = post(client, "/v1/completions", stream=is_streamed, **prompts, **USAGE)
    rows = data_of(response) if is_streamed else [response.json()]
    texts = [""] * 4
    for choice in (choice for row in rows for choice in row["choices"]):
        texts[choice["index"]] += choice["text"]
    assert texts == [true_text("Once")] * 2 + [true_text("Hi")] * 2
    usage = rows[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (6, 4 * LENGTH)
    assert {row["system_fingerprint"] for row in rows} == {f"mlxspec-{__version__}"}


def test_each_prompt_of_a_list_is_drawn_as_one_alone(client):
    def drawn(prompt):
        body = {"prompt": prompt, "temperature": 1, "seed": 5, "n": 2}
        return [one["text"] for one in post(client, "/v1/completions", **body).json()["choices"]]

    texts = drawn(["a", "b"])
    assert texts == drawn("a") + drawn("b")
    assert len(set(texts)) == 4


@each_way
def test_a_response_tells_what_was_asked(client, is_streamed):
    tool = {"type": "function", "name": "go", "parameters": {"type": "object"}}
    fields = {
        **{"instructions": "Be", "max_output_tokens": 3, "metadata": {"a": "b"}, "tools": [tool]},
        **{"tool_choice": "none", "parallel_tool_calls": False, "temperature": 0.5, "top_p": 0.25},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "string"}}},
    }
    for sent in ({}, fields):
        rows = told(post(client, "/v1/responses", stream=is_streamed, **sent)).rows
        for found in (row.get("response", row) for row in rows if "response" in row or "id" in row):
            assert sent.items() <= found.items()
            assert found["previous_response_id"] is None
            assert sent or found["text"] == {"format": {"type": "text"}}


def test_another_model_on_the_list_answers_by_its_name(client):
    found = chat(client, model="other", max_tokens=4)
    assert found["model"] == "other"
    true = true_text(MESSAGES, Target(OTHER), 4)
    assert found["choices"][0]["message"]["content"] == true
    assert chat(client, model="tiny")["choices"][0]["message"]["content"] == TRUE


# ---- fields ---------------------------------------------------------------------------------


def test_seeds_and_several_replies_are_those_of_the_library(client):
    found = chat(client, temperature=0.9, top_p=0.8, seed=5, n=3)
    prompt = TOKENIZER.apply_chat_template(MESSAGES)
    sampling, own = SamplingParams(temperature=0.9, top_p=0.8), engine()
    texts = [
        own.generate_text(prompt, GenerationParams(max_tokens=LENGTH, sampling=sampling, seed=seed))
        for seed in (5, 6, 7)
    ]
    assert [choice["message"]["content"] for choice in found["choices"]] == texts
    assert found["usage"]["completion_tokens"] == 3 * LENGTH


@each_way
@pytest.mark.parametrize("path", ASKED)
def test_an_answer_tells_the_hash_of_the_tokens_of_each_reply(client, path, is_streamed):
    body = {"exact": True, **({"max_tokens": LENGTH} if path == "/v1/messages" else {})}
    answer = post(client, path, stream=is_streamed, **body)
    text = "Hi" if path == "/v1/completions" else TOKENIZER.render_chat(MESSAGES)
    tokens = TARGET.greedy(TOKENIZER.encode(text, add_special_tokens=False), LENGTH)
    found = re.findall(r'"token_hash": ?"(\w+)"', answer.text)
    assert found == [sha256(np.array(tokens, "<i4").tobytes()).hexdigest()]


def test_the_log_says_that_the_first_exact_request_waits_for_an_examination(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(exactness, "_known", {})
    said = []
    monkeypatch.setattr(engine_thread, "_told", SimpleNamespace(info=said.append))
    with serving() as client:
        texts = [told(post(client, CHAT, exact=is_exact)).text for is_exact in (False, True, True)]
    assert texts == [TRUE] * 3
    assert [line.split()[0] for line in said] == ["finding", "found"]


@each_way
def test_each_of_several_replies_has_its_own_hash(client, is_streamed):
    for path in (CHAT, "/v1/completions"):
        answer = post(client, path, stream=is_streamed, temperature=1, seed=5, n=2)
        rows = data_of(answer) if is_streamed else [answer.json()]
        ends = [one for row in rows for one in row["choices"] if one["finish_reason"]]
        assert len({end["token_hash"] for end in ends}) == 2


@each_way
def test_a_stop_text_ends_the_reply_and_is_left_out(client, is_streamed):
    stop = TRUE[3:5]
    found = told(post(client, CHAT, stop=[stop], stream=is_streamed))
    assert (found.text, found.reason) == (TRUE[: TRUE.index(stop)], "stop")
    stops = {"max_tokens": LENGTH, "stop_sequences": ["never", stop]}
    row = told(post(client, "/v1/messages", **stops, stream=is_streamed)).rows[-2 * is_streamed]
    end = row.get("delta", row)
    assert (end["stop_reason"], end["stop_sequence"]) == ("stop_sequence", stop)


def test_the_text_of_a_special_token_ends_a_reply(client):
    (token,) = TOKENIZER.encode("<|head|>", add_special_tokens=False)
    bias = {"logit_bias": {str(token): 100}}
    found = told(post(client, CHAT, stop="<|head|>", **bias))
    assert (found.text, found.reason) == ("", "stop")
    plain = post(client, "/v1/completions", prompt="a", stop=["<|head|><|head|>"], **bias)
    assert plain.json()["usage"]["completion_tokens"] == 2
    end = post(client, "/v1/messages", **bias, stop_sequences=["no", "<|head|>"]).json()
    assert (end["stop_reason"], end["stop_sequence"]) == ("stop_sequence", "<|head|>")


@each_way
def test_logprobs_are_the_targets_own(client, is_streamed):
    fields = {"logprobs": True, "top_logprobs": 4, "temperature": 0.7, "seed": 1, "max_tokens": 5}
    rows = told(post(client, CHAT, **fields, stream=is_streamed)).rows
    found = [
        row
        for chunk in rows
        for choice in chunk["choices"]
        for row in (choice.get("logprobs") or {"content": []})["content"]
    ]
    params = GenerationParams(5, SamplingParams(temperature=0.7), seed=1)
    text = TOKENIZER.apply_chat_template(MESSAGES)
    events = engine().generate(text, params)
    tokens = [token.token for event in events for token in getattr(event, "emit", ())]
    assert len(tokens) == 5
    for token, row in zip(tokens, found, strict=True):
        logits = np.asarray(TARGET.logits(tuple(text)), np.float64)
        logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        assert math.isclose(row["logprob"], logprobs[token], abs_tol=1e-3)
        best = np.sort(logprobs)[::-1][:4]
        assert np.allclose([top["logprob"] for top in row["top_logprobs"]], best, atol=1e-3)
        text.append(token)


@pytest.mark.parametrize("bias", [{}, {"3": 100}, {"200": 100}])
def test_each_token_of_a_completion_has_its_own_logprob_among_the_likeliest(client, bias):
    response = post(client, "/v1/completions", logprobs=5, logit_bias=bias)
    found = response.json()["choices"][0]["logprobs"]
    for name, logprob, top in zip(*list(found.values())[:3], strict=True):
        assert len(top) >= 5
        assert top[name] == logprob
    assert found["text_offset"][0] == 0
    assert found["text_offset"] == sorted(found["text_offset"])
    assert len(found["tokens"]) == LENGTH


def test_a_prediction_is_told_where_it_was_sent_and_there_alone(client):
    fresh = [{"role": "user", "content": "Predict"}]
    true = true_text(fresh)
    found = chat(client, messages=fresh, prediction={"type": "content", "content": true})
    assert found["choices"][0]["message"]["content"] == true
    details = found["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > 0
    assert "accepted_prediction_tokens" not in chat(client)["usage"]["completion_tokens_details"]
    timings = found["timings"]
    assert timings["draft_n"] >= timings["draft_n_accepted"] > 0
    assert timings["draft_kind"] == "pool"


def test_a_reply_fits_the_schema_that_a_request_gives(client):
    schema = {"enum": [12, 21]}
    stated = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    found = told(post(client, CHAT, response_format=stated, max_tokens=20))
    assert json.loads(found.text) in (12, 21)
    assert found.reason == "stop"
    format = {"format": {"type": "json_schema", "schema": schema}}
    assert json.loads(told(post(client, "/v1/responses", text=format)).text) in (12, 21)


@each_way
def test_a_format_that_is_not_checked_is_named_in_a_header(client, is_streamed):
    schema = {"anyOf": [{"const": 12}, {"format": "path"}, {"format": "a\r\nb: c", "type": "null"}]}
    stated = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = post(client, CHAT, response_format=stated, max_tokens=3, stream=is_streamed)
    assert answer.headers["x-mlxspec-unchecked-formats"] == "a%0D%0Ab%3A%20c, path"
    assert "x-mlxspec-unchecked-formats" not in post(client, CHAT, max_tokens=1).headers


# ---- what else there is ---------------------------------------------------------------------


def test_models_health_and_metrics(client):
    def num_written():
        lines = client.get("/metrics").text.splitlines()
        (line,) = (one for one in lines if one.startswith("mlxspec_generated_tokens_total "))
        return float(line.split()[1])

    names = [row["id"] for row in client.get("/v1/models").json()["data"]]
    assert names == ["tiny", "other"]
    assert client.get("/v1/models/here/other").json()["id"] == "other"
    found = client.get("/v1/models/none")
    assert (found.status_code, found.json()["error"]["code"]) == (404, "model_not_found")
    assert client.get("/health").json() == {"status": "ok"}
    before = num_written()
    chat(client)
    assert num_written() == before + LENGTH


NO_SCHEMA = {"type": "json_schema", "schema": {"type": "x"}}


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"temperature": -1}, "temperature"),
        (CHAT, {"n": 100}, "n must be from 1 to 16; got 100"),
        (CHAT, {"model": "/etc/passwd"}, "no model of the name"),
        (CHAT, {"logit_bias": {"99999": 1}}, "token ids from 0 to"),
        (CHAT, {"tools": [3]}, "a tool must be a function"),
        (CHAT, {"top_logprobs": 3}, "top_logprobs"),
        (CHAT, {"response_format": NO_SCHEMA}, "the JSON schema"),
        (CHAT, {"messages": [PICTURE]}, "a part of type input_image"),
        ("/v1/completions", {"prompt": ["a", 5]}, "prompt must be a text"),
        ("/v1/completions", {"prompt": ["a"] * 97}, "may ask for 96 replies; got 97"),
        ("/v1/completions", {"prompt": [99999]}, "not in the vocabulary"),
        ("/v1/completions", {"prompt": "a" * 9000}, "tiny takes 512"),
        ("/v1/responses", {"metadata": [5]}, "metadata"),
        ("/v1/responses", {"n": 2}, "n is not supported"),
        ("/v1/responses", {"top_logprobs": 2}, "ask /v1/chat/completions"),
        ("/v1/responses", {"input": [PICTURE]}, "a part of type input_image"),
        ("/v1/messages", {"max_tokens": None}, "max_tokens"),
        ("/v1/messages", {"n": 2}, "n is not supported"),
        ("/v1/messages", {"messages": [PICTURE]}, "a part of type input_image"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(client, path, fields, named):
    for is_streamed in (False, True):
        status = 404 if "model" in fields else 400
        found = post(client, path, status, **fields, stream=is_streamed).json()
        assert named in found["error"]["message"]


def test_an_error_has_the_form_of_its_api(client):
    found = post(client, CHAT, 404, model="x").json()["error"]
    assert found.pop("message").startswith("there is no model of the name 'x'; there are: tiny")
    assert found == {"type": "not_found_error", "param": "model", "code": "model_not_found"}
    found = client.post("/v1/messages", content=b"{", headers=JSON).json()
    assert (found["type"], found["error"]["type"]) == ("error", "invalid_request_error")
    found = client.options(CHAT)
    assert (found.status_code, found.headers["allow"]) == (405, "POST")
    assert found.json()["error"]["code"] is None
    assert client.head("/health").status_code == 200


def test_hostile_bodies_are_refused(client):
    for body in (
        *(b"", b"{", b"[]", b'"a"', b"9" * 5000, b"\xff\xfe{"),
        *(b"[" * 100_000, b'{"a":' * 50_000),
        *(b'{"messages": NaN}', b'{"n": ' + b"9" * 5000 + b"}"),
    ):
        response = client.post(CHAT, content=body, headers=JSON)
        assert response.status_code == 400, body[:20]
        assert "error" in response.json()
    response = client.post(CHAT, content="{}", headers={"content-type": "text/plain"})
    assert response.status_code == 415

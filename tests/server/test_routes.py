"""Every route: the text is that of the target computed anew in NumPy, streamed and not."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mlxspec import __version__
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.served import (
    JSON,
    LENGTH,
    MESSAGES,
    OTHER,
    TARGET,
    TOKENIZER,
    data_of,
    engine,
    serving,
    true_text,
)
from tests.support.truth import Target

TRUE = true_text(MESSAGES)
CHAT = {"messages": MESSAGES}
PICTURE = {"role": "user", "content": [{"type": "input_image"}]}


@pytest.fixture(scope="module")
def client():
    with serving() as client:
        yield client


def asked(client, path, body, status=200):
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    return response


def chat(client, **fields):
    return asked(client, "/v1/chat/completions", {**CHAT, **fields}).json()


# ---- the text -------------------------------------------------------------------------------


def test_a_chat_completion_is_the_text_of_the_target(client):
    found = chat(client)
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": TRUE}
    assert choice["finish_reason"] == "length"
    assert (found["object"], found["model"]) == ("chat.completion", "tiny")
    usage = found["usage"]
    assert usage["completion_tokens"] == LENGTH
    assert usage["prompt_tokens"] == len(TOKENIZER.apply_chat_template(MESSAGES))
    assert usage["total_tokens"] == usage["prompt_tokens"] + LENGTH


def test_a_stream_says_the_same(client):
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    response = asked(client, "/v1/chat/completions", body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, last = data_of(response)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == TRUE
    assert deltas[0]["role"] == "assistant"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], LENGTH)
    assert response.text.endswith("data: [DONE]\n\n")


def test_without_being_asked_a_stream_tells_no_usage(client):
    rows = data_of(asked(client, "/v1/chat/completions", {**CHAT, "stream": True}))
    assert not any("usage" in row for row in rows)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_completion_goes_on_with_plain_text(client, is_streamed):
    body = {"prompt": "Once", "stream": is_streamed}
    response = asked(client, "/v1/completions", body)
    rows = data_of(response) if is_streamed else [response.json()]
    assert "".join(row["choices"][0]["text"] for row in rows) == true_text("Once")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_each_prompt_of_a_list_has_its_replies_in_order(client, is_streamed):
    body = {
        "prompt": ["Once", TOKENIZER.encode("Hi")],
        "n": 2,
        "stream": is_streamed,
        "temperature": 0,
    }
    told = {"stream_options": {"include_usage": True}}
    response = asked(client, "/v1/completions", {**body, **told})
    rows = data_of(response) if is_streamed else [response.json()]
    texts = [""] * 4
    for choice in (choice for row in rows for choice in row["choices"]):
        texts[choice["index"]] += choice["text"]
    assert texts == [true_text("Once")] * 2 + [true_text("Hi")] * 2
    usage = rows[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (6, 4 * LENGTH)


def test_each_prompt_of_a_list_is_drawn_as_one_alone(client):
    drawn = {"temperature": 1, "seed": 5, "n": 2}
    whole = asked(client, "/v1/completions", {**drawn, "prompt": ["a", "b"]}).json()["choices"]
    alone = [asked(client, "/v1/completions", {**drawn, "prompt": p}).json() for p in "ab"]
    texts = [choice["text"] for one in alone for choice in one["choices"]]
    assert [choice["text"] for choice in whole] == texts
    assert len(set(texts)) == 4


def test_openais_completions_name_what_wrote_them(client):
    for path, body in (("completions", {"prompt": "a"}), ("chat/completions", CHAT)):
        for is_streamed in (False, True):
            response = asked(client, f"/v1/{path}", {**body, "stream": is_streamed})
            for row in data_of(response) if is_streamed else [response.json()]:
                assert row["system_fingerprint"] == f"mlxspec-{__version__}"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_response_tells_what_was_asked(client, is_streamed):
    tool = {"type": "function", "name": "go", "parameters": {"type": "object"}}
    fields = {
        **{"instructions": "Be", "max_output_tokens": 3, "metadata": {"a": "b"}, "tools": [tool]},
        **{"tool_choice": "none", "parallel_tool_calls": False, "temperature": 0.5, "top_p": 0.25},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "string"}}},
    }
    for sent in ({}, fields):
        response = asked(client, "/v1/responses", {"input": "a", "stream": is_streamed, **sent})
        rows = data_of(response) if is_streamed else [{"response": response.json()}]
        for found in (row["response"] for row in rows if "response" in row):
            assert sent.items() <= found.items()
            assert found["previous_response_id"] is None
            assert sent or found["text"] == {"format": {"type": "text"}}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_response_is_the_text_of_the_target(client, is_streamed):
    body = {"input": "Hi", "stream": is_streamed}
    response = asked(client, "/v1/responses", body)
    whole = response.json() if not is_streamed else data_of(response)[-1]["response"]
    (item,) = whole["output"]
    assert item["content"][0]["text"] == TRUE
    assert whole["status"] == "incomplete"
    assert whole["usage"]["output_tokens"] == LENGTH
    if is_streamed:
        rows = data_of(response)
        deltas = [row["delta"] for row in rows if row["type"] == "response.output_text.delta"]
        assert "".join(deltas) == TRUE
        assert [row["sequence_number"] for row in rows] == list(range(len(rows)))


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_message_is_the_text_of_the_target(client, is_streamed):
    body = {**CHAT, "max_tokens": LENGTH, "stream": is_streamed}
    response = asked(client, "/v1/messages", body)
    if not is_streamed:
        found = response.json()
        assert found["content"] == [{"type": "text", "text": TRUE}]
        assert found["stop_reason"] == "max_tokens"
        return
    rows = data_of(response)
    deltas = [row["delta"]["text"] for row in rows if row["type"] == "content_block_delta"]
    assert "".join(deltas) == TRUE
    kinds = [row["type"] for row in rows if row["type"] != "content_block_delta"]
    assert kinds == [
        *("message_start", "content_block_start", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_message_says_which_text_ended_it(client, is_streamed):
    stop = TRUE[3:5]
    body = {**CHAT, "max_tokens": LENGTH, "stop_sequences": ["never", stop], "stream": is_streamed}
    response = asked(client, "/v1/messages", body)
    told = data_of(response)[-2]["delta"] if is_streamed else response.json()
    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", stop)


def test_tokens_are_counted_without_a_reply(client):
    found = asked(client, "/v1/messages/count_tokens", CHAT).json()
    assert found == {"input_tokens": len(TOKENIZER.apply_chat_template(MESSAGES))}


def test_many_clients_get_each_their_own_text(client):
    chats = [[{"role": "user", "content": f"Number {i}"}] for i in range(12)]
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda messages: chat(client, messages=messages), chats))
    texts = [row["choices"][0]["message"]["content"] for row in found]
    assert texts == [true_text(messages) for messages in chats]


def test_another_model_on_the_list_answers_by_its_name(client):
    found = chat(client, model="other")
    assert found["model"] == "other"
    assert found["choices"][0]["message"]["content"] == true_text(MESSAGES, Target(OTHER))
    assert chat(client, model="tiny")["choices"][0]["message"]["content"] == TRUE


# ---- fields ---------------------------------------------------------------------------------


def test_seeds_and_several_replies_are_those_of_the_library(client):
    found = chat(client, temperature=0.9, top_p=0.8, seed=5, n=3)
    prompt = TOKENIZER.apply_chat_template(MESSAGES)
    texts = []
    for seed in (5, 6, 7):
        sampling = SamplingParams(temperature=0.9, top_p=0.8)
        params = GenerationParams(max_tokens=LENGTH, sampling=sampling, seed=seed)
        texts.append(engine().generate_text(prompt, params))
    assert [choice["message"]["content"] for choice in found["choices"]] == texts
    assert found["usage"]["completion_tokens"] == 3 * LENGTH


def test_a_stop_text_ends_the_reply_and_is_left_out(client):
    stop = TRUE[3:5]
    (choice,) = chat(client, stop=[stop])["choices"]
    assert choice["message"]["content"] == TRUE[: TRUE.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_the_text_of_a_special_token_ends_a_reply(client):
    (token,) = TOKENIZER.encode("<|head|>", add_special_tokens=False)
    bias = {"logit_bias": {str(token): 100}}
    (choice,) = chat(client, stop="<|head|>", **bias)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    plain = asked(client, "/v1/completions", {"prompt": "a", "stop": ["<|head|><|head|>"], **bias})
    assert plain.json()["usage"]["completion_tokens"] == 2
    body = {**CHAT, **bias, "max_tokens": 9, "stop_sequences": ["no", "<|head|>"]}
    told = asked(client, "/v1/messages", body).json()
    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "<|head|>")


def test_a_bias_decides(client):
    token = TOKENIZER.encode("z")[0]
    (choice,) = chat(client, logit_bias={str(token): 100}, max_tokens=3)["choices"]
    assert choice["message"]["content"] == "zzz"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_logprobs_are_the_targets_own(client, is_streamed):
    fields = {"logprobs": True, "top_logprobs": 4, "temperature": 0.7, "seed": 1}
    body = {**CHAT, **fields, "stream": is_streamed}
    response = asked(client, "/v1/chat/completions", body)
    rows = data_of(response) if is_streamed else [response.json()]
    told = [
        row
        for chunk in rows
        for choice in chunk["choices"]
        for row in (choice.get("logprobs") or {"content": []})["content"]
    ]
    assert len(told) == LENGTH
    params = GenerationParams(LENGTH, SamplingParams(temperature=0.7), seed=1)
    text = TOKENIZER.apply_chat_template(MESSAGES)
    events = engine().generate(text, params)
    tokens = [token.token for event in events for token in getattr(event, "emit", ())]
    for token, row in zip(tokens, told, strict=True):
        logits = np.asarray(TARGET.logits(tuple(text)), np.float64)
        logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        assert math.isclose(row["logprob"], logprobs[token], abs_tol=1e-3)
        best = np.sort(logprobs)[::-1][:4]
        assert np.allclose([top["logprob"] for top in row["top_logprobs"]], best, atol=1e-3)
        text.append(token)


@pytest.mark.parametrize("bias", [{}, {"3": 100}, {"200": 100}])
def test_each_token_of_a_completion_has_its_own_logprob_among_the_likeliest(client, bias):
    body = {"prompt": "a", "logprobs": 5, "logit_bias": bias}
    choice = asked(client, "/v1/completions", body).json()["choices"][0]
    told = choice["logprobs"]
    for name, logprob, top in zip(*list(told.values())[:3], strict=True):
        assert len(top) >= 5
        assert top[name] == logprob
    assert told["text_offset"][0] == 0
    assert told["text_offset"] == sorted(told["text_offset"])
    assert len(told["tokens"]) == LENGTH


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


def test_a_prompt_that_was_read_is_not_read_again(client):
    long = [{"role": "user", "content": "A long prompt " * 20}]
    cold, warm = chat(client, messages=long), chat(client, messages=long)
    prompt = cold["usage"]["prompt_tokens"]
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == prompt - 1
    assert warm["timings"]["prompt_n"] == 1
    assert warm["choices"] == cold["choices"]


# ---- what else there is ---------------------------------------------------------------------


def test_models_health_and_metrics(client):
    names = [row["id"] for row in client.get("/v1/models").json()["data"]]
    assert names == ["tiny", "other"]
    assert client.get("/health").json() == {"status": "ok"}
    before = _metric(client, "mlxspec_generated_tokens_total")
    chat(client)
    assert _metric(client, "mlxspec_generated_tokens_total") == before + LENGTH


def _metric(client, name):
    lines = client.get("/metrics").text.splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name} "))
    return float(line.split()[1])


def test_a_reply_fits_the_schema_that_a_request_gives(client):
    schema = {"enum": [12, 21]}
    stated = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    found = chat(client, response_format=stated, max_tokens=20)
    assert json.loads(found["choices"][0]["message"]["content"]) in (12, 21)
    assert found["choices"][0]["finish_reason"] == "stop"
    body = {"input": "a", "text": {"format": {"type": "json_schema", "schema": schema}}}
    (output,) = asked(client, "/v1/responses", body).json()["output"]
    assert json.loads(output["content"][0]["text"]) in (12, 21)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_format_that_is_not_checked_is_named_in_a_header(client, is_streamed):
    schema = {"anyOf": [{"const": 12}, {"format": "path"}, {"format": "a\r\nb: c", "type": "null"}]}
    stated = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = {**CHAT, "response_format": stated, "max_tokens": 3, "stream": is_streamed}
    answer = asked(client, "/v1/chat/completions", body)
    assert answer.status_code == 200
    assert answer.headers["x-mlxspec-unchecked-formats"] == "a%0D%0Ab%3A%20c, path"
    assert "x-mlxspec-unchecked-formats" not in asked(client, "/v1/chat/completions", CHAT).headers


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("chat/completions", {"messages": []}, 400, "messages must be a list with at least one"),
        ("chat/completions", {**CHAT, "temperature": -1}, 400, "temperature must be 0 or more"),
        ("chat/completions", {**CHAT, "temperature": "hot"}, 400, "temperature"),
        ("chat/completions", {**CHAT, "max_tokens": "9"}, 400, "max_tokens"),
        ("chat/completions", {**CHAT, "n": 100}, 400, "n must be from 1 to 16; got 100"),
        ("chat/completions", {**CHAT, "model": "/etc/passwd"}, 404, "no model of the name"),
        ("chat/completions", {**CHAT, "draft_model": "x"}, 400, "draft_model is not supported"),
        ("chat/completions", {**CHAT, "adapters": "x"}, 400, "adapters is not supported"),
        ("chat/completions", {**CHAT, "logit_bias": {"a": 1}}, 400, "logit_bias must give"),
        ("chat/completions", {**CHAT, "logit_bias": {"99999": 1}}, 400, "token ids from 0 to"),
        ("chat/completions", {**CHAT, "tools": [3]}, 400, "a tool must be a function"),
        ("chat/completions", {**CHAT, "top_logprobs": 3}, 400, "top_logprobs needs logprobs"),
        ("chat/completions", {**CHAT, "response_format": {"type": "x"}}, 400, "response_format"),
        (
            "chat/completions",
            {**CHAT, "response_format": {"type": "json_schema", "schema": {"type": "x"}}},
            400,
            "the JSON schema",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "content may be text alone; got a part of type image_url",
        ),
        ("completions", {"prompt": ["a", 5]}, 400, "prompt must be a text"),
        ("completions", {"prompt": ["a"] * 97}, 400, "may ask for 96 replies; got 97"),
        ("responses", {"input": "a", "metadata": [5]}, 400, "metadata must be an object"),
        ("completions", {"prompt": [99999]}, 400, "not in the vocabulary"),
        ("completions", {"prompt": "a" * 9000}, 400, "tiny takes 512"),
        ("completions", {"prompt": "a", "echo": True}, 400, "echo is not supported"),
        ("responses", {"input": "a", "previous_response_id": "x"}, 400, "nothing is stored"),
        ("responses", {"input": "a", "n": 2}, 400, "n is not supported"),
        ("responses", {"input": "a", "top_logprobs": 2}, 400, "ask /v1/chat/completions"),
        ("responses", {"input": [PICTURE]}, 400, "got a part of type input_image"),
        ("messages", CHAT, 400, "max_tokens is required"),
        ("messages", {**CHAT, "max_tokens": 9, "n": 2}, 400, "n is not supported"),
        ("messages", {"messages": [PICTURE], "max_tokens": 9}, 400, "a part of type input_image"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(client, path, body, status, message):
    for is_streamed in (False, True):
        found = asked(client, f"/v1/{path}", {**body, "stream": is_streamed}, status).json()
        assert message in found["error"]["message"]


def test_an_error_has_the_form_of_its_api(client):
    found = asked(client, "/v1/chat/completions", {**CHAT, "model": "x"}, 404).json()["error"]
    assert found.pop("message").startswith("there is no model of the name 'x'; there are: tiny")
    assert found == {"type": "not_found_error", "param": "model", "code": "model_not_found"}
    found = client.post("/v1/messages", content=b"{", headers=JSON).json()
    assert (found["type"], found["error"]["type"]) == ("error", "invalid_request_error")
    found = client.options("/v1/chat/completions")
    assert (found.status_code, found.headers["allow"]) == (405, "POST")
    assert found.json()["error"]["code"] is None
    assert client.head("/health").status_code == 200


def test_fields_that_are_not_in_the_table_have_no_effect(client):
    own = {"user": "me", "store": True, "metadata": {"a": 1}, "service_tier": "auto", "x": [1]}
    found = chat(client, **own, stream_options=None, stop=["\0never", TRUE[5:7]])
    assert found["choices"][0]["message"]["content"] == TRUE[: TRUE.index(TRUE[5:7])]


def test_one_model_is_told_by_its_name(client):
    assert client.get("/v1/models/here/other").json()["id"] == "other"
    found = client.get("/v1/models/none")
    assert (found.status_code, found.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b'"a"', b"9" * 5000, b"\xff\xfe{"),
        *(b"[" * 100_000, b'{"a":' * 50_000),
        *(b'{"messages": NaN}', b'{"n": ' + b"9" * 5000 + b"}"),
    ],
)
def test_hostile_bodies_are_refused(client, body):
    response = client.post("/v1/chat/completions", content=body, headers=JSON)
    assert response.status_code == 400
    assert "error" in response.json()


def test_a_body_of_another_kind_is_refused(client):
    response = client.post(
        "/v1/chat/completions", content="{}", headers={"content-type": "text/plain"}
    )
    assert response.status_code == 415

"""Every field that programs send: honoured, harmless, or refused by its name; never a fault."""

import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mlxspec.params import GenerationParams, Grammar
from mlxspec.trace.events import EmittedToken
from mlxspec_server.asking import NO_TOOLS
from mlxspec_server.body import Body, Refusal
from mlxspec_server.pieces import ReplyPieces, TokenLogprob
from mlxspec_server.server import APIS
from tests.support.served import ASKED, serving

DEFAULTS = GenerationParams(seed=3)
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def settings(api, **fields):
    """The settings that fields leave, without the drawn seed."""
    return APIS[api](Body({**ASKED[api], "seed": 3, **fields}), DEFAULTS).ask.params


def usual(api):
    return settings(api)


def refusal(api, **fields):
    try:
        settings(api, **fields)
    except Refusal as refused:
        return refused
    return None


each_api = pytest.mark.parametrize("api", ASKED)


# ---- honoured --------------------------------------------------------------------------------


def told(**args):
    return {"chat_template_args": args}


SETTINGS = [
    ({"max_tokens": 7}, {"max_tokens": 7}),
    ({"max_tokens": -1}, {"max_tokens": 2**31}),
    ({"stop": ["a", ""]}, {"stop": ("a",)}),
    ({"stop": ""}, {"stop": ()}),
    ({"stop_sequences": ["a"]}, {"stop": ("a",)}),
    ({"seed": -2}, {"seed": 2**64 - 2}),
    ({"stop_token_ids": [4]}, {"stop_tokens": (4,)}),
    ({"ignore_eos": True}, {"ignore_eos": True}),
    ({"num_draft_tokens": 2}, {"num_draft_tokens": 2}),
    ({"exact": True}, {"exact": True}),
    ({"exact": False}, {}),
    ({"reasoning_effort": "low"}, {"think_tokens": 1024, **told(reasoning_effort="low")}),
    ({"reasoning": {"effort": "low"}}, {"think_tokens": 1024, **told(reasoning_effort="low")}),
    ({"output_config": {"effort": "low"}}, {"think_tokens": 1024, **told(reasoning_effort="low")}),
    ({"reasoning_effort": "none"}, {"think_tokens": 0, **told(reasoning_effort="none")}),
    ({"reasoning_effort": "medium"}, {"think_tokens": 8192, **told(reasoning_effort="medium")}),
    ({"reasoning_effort": "high"}, {"think_tokens": 24576, **told(reasoning_effort="high")}),
    ({"reasoning_effort": "max"}, told(reasoning_effort="max")),
    ({"thinking": {"type": "disabled"}}, {"think_tokens": 0, **told(enable_thinking=False)}),
    ({"thinking": {"type": "adaptive"}}, told(enable_thinking=True)),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 9}},
        {"think_tokens": 9, **told(enable_thinking=True)},
    ),
    ({"think": True}, told(enable_thinking=True)),
    ({"enable_thinking": False}, {"think_tokens": 0, **told(enable_thinking=False)}),
    ({"think_tokens": 7}, {"think_tokens": 7}),
    ({"budget_tokens": 0}, {"think_tokens": 0}),
    ({"thinking_budget_tokens": -1}, {}),
    (
        {"reasoning_effort": "low", "thinking_token_budget": 7},
        {"think_tokens": 7, **told(reasoning_effort="low")},
    ),
    ({"verbosity": "low"}, {"chat_template_args": {"verbosity": "low"}}),
    ({"prediction": {"type": "content", "content": "a"}}, {"prediction": "a"}),
]
SAMPLING = [
    *(
        ({name: 0.25}, {name: 0.25})
        for name in ("temperature", "top_p", "min_p", "xtc_probability")
    ),
    *(({name: 0.25}, {name: 0.25}) for name in ("xtc_threshold", "presence_penalty")),
    ({"frequency_penalty": 0.25}, {"frequency_penalty": 0.25}),
    ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ({"top_k": 3}, {"top_k": 3}),
    ({"logit_bias": {"4": 1}}, {"logit_bias": {4: 1}}),
    ({"temperature": 1e-8}, {"temperature": 0}),
    ({"top_p": 0}, {"top_p": 0}),
    ({"top_k": -1}, {"top_k": 0}),
    ({"repetition_penalty": 0}, {"repetition_penalty": 1}),
]


@each_api
def test_a_field_changes_its_setting(api):
    for fields, changed in SETTINGS:
        assert settings(api, **fields) == replace(usual(api), **changed), fields
    for fields, changed in SAMPLING:
        sampling = settings(api, **fields).sampling
        assert sampling == replace(usual(api).sampling, **changed), fields


def test_what_a_template_reads_is_the_requests_before_the_servers():
    own = replace(DEFAULTS, chat_template_args={"enable_thinking": False, "a": 1})
    fields = {"think": True, "chat_template_kwargs": {"b": 2}}
    found = APIS[CHAT](Body({**ASKED[CHAT], **fields}), own).ask.params.chat_template_args
    assert found == {"enable_thinking": True, "a": 1, "b": 2}


def test_a_request_that_thinks_lifts_a_server_that_does_not_and_keeps_a_limit():
    on, off, low = {"think": True}, {"enable_thinking": False}, {"reasoning_effort": "low"}
    for own, fields, found in (
        *((0, on, -1), (5, on, 5), (-1, on, -1), (0, {"thinking": {"type": "enabled"}}, -1)),
        *((0, on | low, 1024), (0, off | low, 0), (5, off | low, 0), (5, low, 1024)),
    ):
        defaults = replace(DEFAULTS, think_tokens=own)
        params = APIS[CHAT](Body({**ASKED[CHAT], **fields}), defaults).ask.params
        assert params.think_tokens == found


@each_api
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reasoning_effort": "some"}, "reasoning_effort must be one of none, minimal, low, "),
        ({"thinking": {"type": "some"}}, "thinking.type must be one of enabled, adaptive, auto, "),
        ({"thinking": {"budget_tokens": -2}}, "thinking.budget_tokens: think_tokens must be 0 or"),
        ({"thinking": {"budget_tokens": "9"}}, "think_tokens must be a whole number, 0 or more"),
        ({"think_tokens": 1.5}, "think_tokens must be a whole number, 0 or more, or -1 for no"),
    ],
)
def test_a_limit_of_reasoning_that_cannot_be_is_refused(api, fields, message):
    refused = refusal(api, **fields)
    assert refused.status == 400
    assert message in str(refused)
    assert refused.param.partition(".")[0] in fields


def test_a_seed_of_minus_one_is_drawn():
    assert len({settings(CHAT, seed=-1).seed for _ in range(8)}) > 1


PLACES = [
    lambda s: {"response_format": {"type": "json_schema", "json_schema": {"schema": s}}},
    lambda s: {"response_format": {"type": "json_schema", "schema": s}},
    lambda s: {"response_format": {"type": "json_object", "schema": s}},
    lambda s: {"text": {"format": {"type": "json_schema", "name": "x", "schema": s}}},
    lambda s: {"output_config": {"format": {"type": "json_schema", "schema": s}}},
    lambda s: {"output_format": {"type": "json_schema", "schema": s}},
    lambda s: {"guided_json": s},
    lambda s: {"guided_json": json.dumps(s)},
    lambda s: {"json_schema": s},
    lambda s: {"structured_outputs": {"json": s}},
]
GRAMMARS = [
    ({"response_format": {"type": "json_object"}}, Grammar.json_schema({"type": "object"})),
    ({"guided_regex": "a+"}, Grammar.regex("a+")),
    ({"regex": "a+"}, Grammar.regex("a+")),
    ({"guided_choice": ["a", "b"]}, Grammar.choices(["a", "b"])),
    ({"structured_outputs": {"choice": ["a"]}}, Grammar.choices(["a"])),
    ({"guided_grammar": 'start: "a"'}, Grammar.lark('start: "a"')),
    ({"grammar": 'start: "a"'}, Grammar.lark('start: "a"')),
    ({"response_format": {"type": "text"}}, None),
    ({"guided_json": None, "grammar": ""}, None),
]


@each_api
def test_a_format_is_kept_wherever_it_stands(api):
    schemas = [{"enum": [12, 21]}, {}, True]
    stated = [(place(s), Grammar.json_schema(s)) for place in PLACES for s in schemas]
    for fields, kept in stated + GRAMMARS:
        assert settings(api, **fields).grammar == kept, fields


# ---- harmless --------------------------------------------------------------------------------

HARMLESS = [
    *({name: "x"} for name in ("user", "safety_identifier", "prompt_cache_key", "service_tier")),
    *({name: True} for name in ("store", "cache_prompt", "unknown", "timings_per_token")),
    *({name: {"a": "b"}} for name in ("metadata", "cache_control", "provider")),
    *({name: None} for name in ("temperature", "stop", "max_tokens", "echo", "grammar")),
    *({"stop": []}, {"logit_bias": {}}, {"stream_options": None}, {"top_k": 0}, {"min_p": 0}),
    *({"repetition_penalty": 1.0}, {"n": 1}, {"best_of": 1}, {"suffix": ""}, {"echo": False}),
    *({"mirostat": 0}, {"typical_p": 1.0}, {"dry_multiplier": 0.0}, {"dry_base": 1.75}),
    *({"min_tokens": 0}, {"bad_words": []}, {"prompt_logprobs": 0}, {"skip_special_tokens": True}),
    *({"repetition_context_size": 20}, {"repeat_last_n": 64}, {"repeat_penalty": 1.0}),
    *({"top_n_sigma": -1}, {"modalities": ["text"]}, {"background": False}, {"lora": []}),
    *({"functions": []}, {"function_call": "auto"}),
]


@each_api
def test_a_field_that_changes_no_reply_is_taken(api):
    for fields in HARMLESS:
        assert settings(api, **{**fields, **ASKED[api]}) == usual(api), fields


# ---- refused ---------------------------------------------------------------------------------

NAMES = (
    "draft_model adapters adapter lora previous_response_id conversation background echo suffix "
    "best_of bad_words min_tokens prompt_logprobs allowed_token_ids mirostat typical_p "
    "dry_multiplier samplers dynatemp_range top_n_sigma tfs_z chat_template documents ebnf "
    "functions function_call audio n_probs repeat_penalty include_stop_str_in_output "
    "use_beam_search logits_processors mcp_servers web_search_options"
)


@each_api
def test_a_field_that_cannot_be_honoured_is_refused_by_its_name(api):
    for name in NAMES.split():
        refused = refusal(api, **{name: [7]})
        assert refused is not None, name
        assert str(refused).startswith(f"{name} is not supported: ")
        assert (refused.status, refused.param) == (400, name)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"skip_special_tokens": False}, "skip_special_tokens is not supported"),
        ({"grammar": 'root ::= "a"'}, "grammar: GBNF and EBNF are not read"),
        ({"guided_json": "/etc/passwd"}, "guided_json: "),
        ({"guided_json": '"/etc/passwd"'}, "guided_json: the JSON schema must be an object"),
        ({"guided_json": {}, "guided_regex": "a"}, "give guided_json or guided_regex"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structural_tag is not supported"),
        ({"response_format": {"schema": {}}}, "response_format must be text"),
        (
            {"repetition_penalty": 1.1, "repetition_context_size": 20},
            "repetition_context_size is not supported: penalties count the whole text",
        ),
    ],
)
def test_what_is_half_known_is_refused_in_words(fields, message):
    with pytest.raises(Refusal, match=message):
        settings(CHAT, **fields)


def test_edits_of_the_context_are_refused_but_for_thinking():
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}]
    assert settings(MESSAGES, context_management={"edits": edits}) == usual(MESSAGES)
    with pytest.raises(Refusal, match="context_management is not supported"):
        settings(MESSAGES, context_management={"edits": [{"type": "clear_tool_uses_20250919"}]})


# ---- of a wrong type -------------------------------------------------------------------------

WRONG = (-7, 1.5, 10**400, True, "x", [5], [[]], {"a": 5}, {"type": 5}, [{"type": []}])
TYPED = (
    "model temperature top_p top_k min_p repetition_penalty presence_penalty frequency_penalty "
    "xtc_probability xtc_threshold logit_bias max_tokens stop seed stop_token_ids ignore_eos "
    "num_draft_tokens exact think_tokens thinking_budget chat_template_kwargs prediction n "
    "response_format guided_json guided_regex guided_choice guided_grammar json_schema grammar "
    "structured_outputs text output_config output_format reasoning reasoning_effort verbosity "
    "thinking think enable_thinking stream logprobs top_logprobs include context_management "
    "best_of modalities"
)


@each_api
def test_a_field_of_a_wrong_type_is_taken_or_refused(api):
    for name in TYPED.split():
        for value in WRONG:
            for stated in (value, {"format": value}, {"type": "json_schema", "schema": value}):
                refused = refusal(api, **{name: stated})
                assert not refused or (refused.status == 400 and refused.param), (name, refused)


# ---- logprobs beside their text --------------------------------------------------------------


def test_each_piece_tells_the_logprobs_of_the_tokens_whose_text_it_has():
    makers = ReplyPieces(0, None, NO_TOOLS)
    texts = ["a", "", "bc"]
    emit = [EmittedToken(i, text, "plain", None, None) for i, text in enumerate(texts)]
    rows = [TokenLogprob(i, -1.0) for i in range(3)]
    pieces = makers.of(SimpleNamespace(emit=emit), rows)
    told = [(piece.text, [row.token for row in piece.logprobs]) for piece in pieces]
    assert told == [("a", [0]), ("bc", [1, 2])]


def test_half_a_character_is_refused_by_the_name_of_its_field():
    for body, name in (('{"model": "\\ud800"}', "model"), ('{"user": {"\\udfff": 1}}', "user")):
        with pytest.raises(Refusal, match=f"^{name} is not UTF-8"):
            Body.of(body.encode())
    assert Body.of(b'{"model": "\\ud83d\\ude00"}').text("model") == "\U0001f600"
    with pytest.raises(Refusal, match="utf-8"):
        Body.of(b'{"model": "\xed\xa0\x80"}')


# ---- a value of a wrong type anywhere in a whole request ---------------------------------------

WRONG_PARTS = (None, True, 7, -1.5, "x", [], [[]], [7], {}, {"type": 7})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
PARAMETERS = {"name": "go", "description": "Goes", "parameters": SCHEMA}
CALL = {"id": "a", "type": "function", "function": {"name": "go", "arguments": "{}"}}
WHOLE_CHAT = {
    "messages": [
        {"role": "system", "content": "Be"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "a", "reasoning_content": "b", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ],
    "tools": [{"type": "function", "function": PARAMETERS}],
    "tool_choice": {"type": "function", "function": {"name": "go"}},
    "stream_options": {"include_usage": True},
    "max_tokens": 1,
}
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "name": "go"}]}
REQUESTS = {
    "/v1/chat/completions": WHOLE_CHAT,
    "/v1/completions": {"prompt": ["a", [72]], "logprobs": 1, "max_tokens": 1},
    "/v1/messages": {
        "system": [{"type": "text", "text": "Be"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "b", "signature": "c"},
                    {"type": "tool_use", "id": "a", "name": "go", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}],
            },
        ],
        "tools": [{"name": "go", "description": "Goes", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "max_tokens": 1,
    },
    "/v1/responses": {
        "instructions": "Be",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "b"}]},
            {"type": "function_call", "call_id": "a", "name": "go", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
        ],
        "tools": [{"type": "function", **PARAMETERS}],
        "tool_choice": {"type": "allowed_tools", **ALLOWED},
        "metadata": {"a": "b"},
        "max_output_tokens": 1,
    },
}


def places_in(value, at=()):
    """The place of each value in a document, the document's own left out."""
    lists = dict(enumerate(value)) if isinstance(value, list) else {}
    for name, one in (value if isinstance(value, dict) else lists).items():
        yield (*at, name)
        yield from places_in(one, (*at, name))


def changed(document, place, value):
    found = copy.deepcopy(document)
    inner = found
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return found


@pytest.mark.parametrize("path", REQUESTS)
def test_no_value_of_a_wrong_type_is_a_fault_of_the_server(path):
    request = REQUESTS[path]
    with serving() as client:
        assert client.post(path, json=request).status_code == 200
        for place in places_in(request):
            for value in WRONG_PARTS:
                found = client.post(path, json=changed(request, place, value))
                assert found.status_code in (200, 400, 404), (place, value, found.text)

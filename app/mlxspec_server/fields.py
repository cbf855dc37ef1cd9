"""Request fields that the server does not support and refuses by name.

A field that would change the reply is honoured or refused, never ignored. The tables cover the APIs
of OpenAI and Anthropic, and extensions of other servers. Fields in no table are ignored, as vLLM
and llama.cpp do: clients send many fields that change no reply, and new ones every month.
"""

from typing import Any

from mlxspec_server.body import Body

_NOTHING: tuple[Any, ...] = (0, False, "", [], {})
"""Values that count as absent."""

_FILES = "the server answers with the models that it was given"
_STORE = "nothing is stored: send the whole chat"
_TEXT = "only text is read and written"
_TOLD = "a reply has the form that docs/serving.md describes"
_SAMPLING = "tokens are drawn by temperature, top_k, top_p, min_p and XTC alone"
_BOUND = "only a schema, a grammar or logit_bias forbid tokens"
_PROMPT = "the model's own chat template makes the prompt"
_WINDOW = "penalties count the whole text"

_REFUSED = {
    _FILES: "draft_model adapter adapters adapter_path lora lora_path models plugins",
    _STORE: "previous_response_id conversation background container session_params prompt_mode",
    _TEXT: "audio image_data mcp_servers multimodal_content",
    _TOLD: (
        "echo include_stop_str_in_output return_tokens_as_token_ids return_token_ids "
        "return_tokens response_fields post_sampling_probs no_stop_trim n_probs prompt_logprobs "
        "n_indent reasoning_in_content"
    ),
    _SAMPLING: (
        "mirostat mirostat_mode dynatemp_range dynamic_temperature samplers sampler_priority "
        "dry_multiplier top_a smoothing_factor penalty_alpha no_repeat_ngram_size "
        "epsilon_cutoff eta_cutoff nsigma temperature_last temp_last use_beam_search "
        "logits_processors vllm_xargs custom_logit_processor custom_params repetition_detection"
    ),
    _BOUND: (
        "min_tokens min_new_tokens bad_words allowed_token_ids banned_tokens banned_strings "
        "custom_token_bans ban_eos_token stop_regex"
    ),
    _PROMPT: (
        "chat_template documents role_mapping truncate_prompt_tokens safe_prompt "
        "negative_prompt token_healing suffix input_prefix input_suffix"
    ),
    "the reply ends by its number of tokens, max_tokens": (
        "t_max_predict_ms thinking_token_budget thinking_budget_tokens"
    ),
    "give a JSON schema, or guided_regex, guided_choice, or a grammar in Lark's syntax": (
        "ebnf structural_tag guided_whitespace_pattern grammar_string options format"
    ),
    "send tools": "functions",
}
"""Why fields are refused unless they are empty."""

_UNLESS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "modalities": (_TEXT, (["text"],)),
    "web_search_options": (_TEXT, ()),
    "function_call": ("send tool_choice", ("auto", "none")),
    "skip_special_tokens": (_TOLD, (True,)),
    "separate_reasoning": (_TOLD, (True,)),
    "stream_reasoning": (_TOLD, (True,)),
    "include_reasoning": (_TOLD, (True,)),
    "reasoning_format": (_TOLD, ("auto", "deepseek", "parsed")),
    "parse_tool_calls": (_TOLD, (True,)),
    "typical_p": (_SAMPLING, (1,)),
    "typical": (_SAMPLING, (1,)),
    "tfs": (_SAMPLING, (1,)),
    "tfs_z": (_SAMPLING, (1,)),
    "guidance_scale": (_SAMPLING, (1,)),
    "cfg_scale": (_SAMPLING, (1,)),
    "encoder_repetition_penalty": (_SAMPLING, (1,)),
    "length_penalty": (_SAMPLING, (1,)),
    "do_sample": ("say temperature 0 for the likeliest token", (True,)),
    "top_n_sigma": (_SAMPLING, (-1, 0)),
    "min_keep": (_SAMPLING, (0, 1)),
    "repeat_penalty": (f"{_WINDOW}: give repetition_penalty", (1, 0)),
}
"""Why fields are refused unless they have one of these values."""

_PENALTIES = {
    "repetition_context_size": "repetition_penalty",
    "repetition_penalty_range": "repetition_penalty",
    "repeat_last_n": "repetition_penalty",
    "presence_context_size": "presence_penalty",
    "frequency_context_size": "frequency_penalty",
}
"""Windows of penalties, which have no effect without a penalty."""


def refuse_others(body: Body) -> None:
    """Refuse each field that would change the reply and is not supported.

    Raises:
        Refusal: The request contains such a field.
    """
    for why, names in _REFUSED.items():
        for name in names.split():
            body.refuse(name, why, allowed=_NOTHING)
    for name, (why, allowed) in _UNLESS.items():
        body.refuse(name, why, allowed=allowed)
    body.refuse("best_of", "all replies are returned: ask for n", allowed=(1, body.get("n")))
    body.refuse("n_cmpl", "ask for n", allowed=(1,))
    for name, penalty in _PENALTIES.items():
        if body.get(penalty) not in (None, 0, 1 if penalty == "repetition_penalty" else 0):
            body.refuse(name, _WINDOW, allowed=(-1,))

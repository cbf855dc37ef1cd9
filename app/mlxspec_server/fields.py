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
_TEXT = "only text is read and written"
_TOLD = "a reply has the form that docs/serving.md describes"
_SAMPLING = "tokens are drawn by temperature, top_k, top_p, min_p and XTC alone"
_WINDOW = "penalties count the whole text"

_REFUSED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    (_FILES, _NOTHING, "draft_model adapter adapters adapter_path lora lora_path models plugins"),
    (
        "nothing is stored: send the whole chat",
        _NOTHING,
        "previous_response_id conversation background container session_params prompt_mode",
    ),
    (_TEXT, _NOTHING, "audio image_data mcp_servers multimodal_content"),
    (_TEXT, (["text"],), "modalities"),
    (_TEXT, (), "web_search_options"),
    (
        _TOLD,
        _NOTHING,
        "echo include_stop_str_in_output return_tokens_as_token_ids return_token_ids "
        "return_tokens response_fields post_sampling_probs no_stop_trim n_probs prompt_logprobs "
        "n_indent reasoning_in_content",
    ),
    (
        _TOLD,
        (True,),
        "skip_special_tokens separate_reasoning stream_reasoning include_reasoning "
        "parse_tool_calls",
    ),
    (_TOLD, ("auto", "deepseek", "parsed"), "reasoning_format"),
    (
        _SAMPLING,
        _NOTHING,
        "mirostat mirostat_mode dynatemp_range dynamic_temperature samplers sampler_priority "
        "dry_multiplier top_a smoothing_factor penalty_alpha no_repeat_ngram_size "
        "epsilon_cutoff eta_cutoff nsigma temperature_last temp_last use_beam_search "
        "logits_processors vllm_xargs custom_logit_processor custom_params repetition_detection",
    ),
    (
        _SAMPLING,
        (1,),
        "typical_p typical tfs tfs_z guidance_scale cfg_scale encoder_repetition_penalty "
        "length_penalty",
    ),
    (_SAMPLING, (-1, 0), "top_n_sigma"),
    (_SAMPLING, (0, 1), "min_keep"),
    ("say temperature 0 for the likeliest token", (True,), "do_sample"),
    (f"{_WINDOW}: give repetition_penalty", (1, 0), "repeat_penalty"),
    (
        "only a schema, a grammar or logit_bias forbid tokens",
        _NOTHING,
        "min_tokens min_new_tokens bad_words allowed_token_ids banned_tokens banned_strings "
        "custom_token_bans ban_eos_token stop_regex",
    ),
    (
        "the model's own chat template makes the prompt",
        _NOTHING,
        "chat_template documents role_mapping truncate_prompt_tokens safe_prompt "
        "negative_prompt token_healing suffix input_prefix input_suffix",
    ),
    (
        "the reply ends by its number of tokens, max_tokens",
        _NOTHING,
        "t_max_predict_ms thinking_token_budget thinking_budget_tokens",
    ),
    (
        "give a JSON schema, or guided_regex, guided_choice, or a grammar in Lark's syntax",
        _NOTHING,
        "ebnf structural_tag guided_whitespace_pattern grammar_string options format",
    ),
    ("send tools", _NOTHING, "functions"),
    ("send tool_choice", ("auto", "none"), "function_call"),
    ("ask for n", (1,), "n_cmpl"),
)
"""Why fields are refused, and the values with which they are not."""

_PENALTIES = {
    "repetition_context_size": "repetition_penalty",
    "repetition_penalty_range": "repetition_penalty",
    "repeat_last_n": "repetition_penalty",
    "presence_context_size": "presence_penalty",
    "frequency_context_size": "frequency_penalty",
}
"""Windows of penalties, which have no effect without a penalty."""


def refuse_others(body: Body) -> None:
    """Refuse each field that would change the reply and is not supported."""
    for why, allowed, names in _REFUSED:
        for name in names.split():
            body.refuse(name, why, allowed=allowed)
    body.refuse("best_of", "all replies are returned: ask for n", allowed=(1, body.get("n")))
    for name, penalty in _PENALTIES.items():
        if body.get(penalty) not in (None, 0, 1 if penalty == "repetition_penalty" else 0):
            body.refuse(name, _WINDOW, allowed=(-1,))

"""The body of a request: JSON of limited size, checked fields, and the refusal of a request.

A field that would change the reply is honoured or refused by name, never ignored. The tables cover
the APIs of OpenAI and Anthropic, and extensions of other servers. Fields in no table are ignored,
as vLLM and llama.cpp do: clients send many fields that change no reply, and new ones every month.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.requests import Request
from starlette.responses import JSONResponse

_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # half a surrogate pair; matches complete pairs too

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
        "t_max_predict_ms",
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


class Refusal(Exception):
    """A refused request: its HTTP status, and a message that says what is allowed.

    `param` is the request field at fault, or "". `retry_s` are the seconds until the client may
    retry; 0 if a retry cannot help.
    """

    def __init__(self, status: int, message: str, param: str = "", retry_s: int = 0) -> None:
        super().__init__(message)
        self.status, self.param, self.retry_s = status, param, retry_s

    def body(self, path: str) -> dict[str, Any]:
        """Return the error document in the format of the API at `path`: Anthropic's or OpenAI's."""
        kind, message = self.kind, str(self)
        if path.startswith("/v1/messages"):
            kind = "api_error" if kind == "server_error" else kind
            return {"type": "error", "error": {"type": kind, "message": message}}
        error = {"type": kind, "message": message}
        return {"error": {**error, "param": self.param or None, "code": self.code}}

    def answer(self, path: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
        wait = {"Retry-After": str(self.retry_s)} if self.retry_s else {}
        return JSONResponse(self.body(path), self.status, {**wait, **(headers or {})})

    @property
    def kind(self) -> str:
        """Error type in OpenAI's APIs."""
        other = "server_error" if self.status >= 500 else "invalid_request_error"
        return _KINDS.get(self.status, other)

    @property
    def code(self) -> str | None:
        """Error code in OpenAI's APIs; None if they have none for it."""
        is_model = self.status == 404 and self.param == "model"
        return "model_not_found" if is_model else _CODES.get(self.status)


async def received_body(request: Request, most: int) -> bytes:
    """Return the bytes of the body of a request, which must be declared as JSON.

    A web page of another origin cannot declare JSON without a preflight request.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, f"the body must be application/json; got {kind or 'no content-type'}")
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > most:
            raise Refusal(413, f"the body may have {most:,} bytes: send less")
    return bytes(received)


class Body:
    """The fields of a request; null counts as absent, and what is absent is empty."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = {name: value for name, value in fields.items() if value is not None}

    @staticmethod
    def of(received: bytes) -> "Body":
        """Return the fields of a body; a large body takes some tenths of a second."""
        try:
            found = json.loads(str(received, "utf-8-sig"), parse_constant=_no_number)
            if isinstance(found, dict) and _HALF.search(received):
                _refuse_halves(found)
        except RecursionError as error:
            raise Refusal(400, "the body is nested too deep") from error
        except ValueError as error:
            message = f"the body is no JSON that can be read: {str(error)[:200]}"
            raise Refusal(400, message) from error
        if not isinstance(found, dict):
            raise Refusal(400, "the body must be a JSON object")
        return Body(found)

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str) -> Any:
        """Return a field unchecked, or None."""
        return self._fields.get(name)

    def text(self, name: str, default: str = "") -> str:
        return str(self._typed(name, default, str, "a text"))

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        value = self._typed(name, default, int, "a whole number")
        if not least <= value <= most:
            raise Refusal(400, f"{name} must be from {least} to {most}; got {_cut(value)}", name)
        return int(value)

    def is_on(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise Refusal(400, f"{name} must be true or false; got {_cut(value)}", name)
        return default if value is None else value

    def object(self, name: str) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self._typed(name, {}, dict, "an object")
        return value

    def part(self, name: str) -> "Body":
        return Body(self.object(name))

    def items(self, name: str) -> list[Any]:
        value: list[Any] = self._typed(name, [], list, "a list")
        return value

    def refuse(self, name: str, instead: str, *, allowed: tuple[Any, ...] = ()) -> None:
        """Refuse a field that the server does not support, unless its value is allowed."""
        if name in self and self.get(name) not in allowed:
            raise Refusal(400, f"{name} is not supported: {instead}", name)

    def refuse_others(self) -> None:
        """Refuse each field that would change the reply and that no API here reads."""
        for why, allowed, names in _REFUSED:
            for name in names.split():
                self.refuse(name, why, allowed=allowed)
        self.refuse("best_of", "all replies are returned: ask for n", allowed=(1, self.get("n")))
        for name, penalty in _PENALTIES.items():
            if self.get(penalty) not in (None, 0, 1 if penalty == "repetition_penalty" else 0):
                self.refuse(name, _WINDOW, allowed=(-1,))

    def _typed(self, name: str, default: Any, kind: type, words: str) -> Any:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Refusal(400, f"{name} must be {words}; got {_cut(value)}", name)
        return value


def _cut(value: object) -> str:
    return (str(value) if isinstance(value, int) else json.dumps(value, default=str))[:40]


def _refuse_halves(found: Mapping[str, Any]) -> None:
    """Refuse texts with a lone surrogate, which no reply or refusal could write back."""
    for name, value in found.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            shown = ascii(name)[1:-1][:60]
            message = f"{shown} is not UTF-8: it has half a character; send whole ones"
            raise Refusal(400, message, shown) from error


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")

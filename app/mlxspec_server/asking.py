"""Turns the fields of a request into the settings of its replies."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlxspec.params import GenerationParams
from mlxspec_server.body import Body
from mlxspec_server.fields import refuse_others
from mlxspec_server.formats import grammar_of
from mlxspec_server.refusals import Refusal

MOST_REPLIES = 16
_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "xtc_probability", "xtc_threshold"),
)
_NAMES = (
    (
        ("max_output_tokens", "max_completion_tokens", "max_tokens", "n_predict", "max_new_tokens"),
        "max_tokens",
    ),
    (("stop", "stop_sequences"), "stop"),
    (("seed", "random_seed"), "seed"),
    (("stop_token_ids",), "stop_tokens"),
    (("ignore_eos",), "ignore_eos"),
    (("num_draft_tokens",), "num_draft_tokens"),
)
"""The field names of each setting; the first one present in a request counts."""

_USUAL: dict[str, tuple[tuple[Any, Any], ...]] = {
    "max_tokens": ((-1, 2**31),),
    "seed": ((-1, None),),
    "stop": (("", ()),),
    "repetition_penalty": ((0, 1.0),),
}
"""Values by which other programs mean "default", and the setting here.

llama.cpp sends -1 for a length up to the context and for a random seed; mlx-lm sends 0 for a
penalty that is off.
"""


@dataclass(frozen=True)
class Ask:
    """What a request asks for, apart from its prompt.

    Attributes:
        model: "" for the server's main model.
        params: Settings of the first reply to a prompt. Each further reply has the next seed.
        num_replies: Over all prompts; the replies to the first prompt come first.
        num_logprobs: The most probable tokens to report at each position; None for no logprobs.
    """

    model: str
    params: GenerationParams
    is_streamed: bool
    num_replies: int = 1
    num_prompts: int = 1
    num_logprobs: int | None = None

    def seeds(self) -> list[int]:
        num_each = self.num_replies // self.num_prompts
        return [(self.params.seed + i % num_each) % 2**64 for i in range(self.num_replies)]


def ask_of(body: Body, defaults: GenerationParams, *, num_logprobs: int | None = None) -> Ask:
    """Return what a request asks for; `defaults` fill in absent fields.

    Raises:
        Refusal: A field has the wrong type, is out of range, or is not supported.
    """
    refuse_others(body)
    params = replace(defaults, seed=random.SystemRandom().getrandbits(32))
    for names, kind in _NAMES:
        name = body.first(*names)
        if name in body:
            params = _with(params, name, kind, body.get(name))
    for name in (name for name in _SAMPLING if name in body):
        params = _with(params, name, name, body.get(name))
    if "logit_bias" in body:
        params = _with(params, "logit_bias", "logit_bias", _bias(body.object("logit_bias")))
    if "prediction" in body:
        params = _with(params, "prediction", "prediction", _prediction(body))
    stated = body.object("chat_template_kwargs")
    args = {**defaults.chat_template_args, **hints_of(body), **stated}
    params = _with(params, "chat_template_kwargs", "chat_template_args", args)
    return Ask(
        model=body.text("model"),
        params=replace(params, grammar=grammar_of(body) or params.grammar),
        is_streamed=body.is_on("stream"),
        num_replies=body.whole("n", 1, 1, MOST_REPLIES),
        num_logprobs=num_logprobs,
    )


def _with(params: GenerationParams, name: str, kind: str, value: Any) -> GenerationParams:
    """Return the settings with the value of one request field.

    `name` is the field in the request, for messages; `kind` is our name of the setting.

    Raises:
        Refusal: The value has the wrong type or is out of range.
    """
    for usual, settled in _USUAL.get(kind, ()):
        if value == usual and type(value) is not bool:
            value = settled
    try:
        if kind == "stop" and isinstance(value, list):
            value = [text for text in value if text != ""]
        if kind == "seed" and type(value) is int:
            value %= 2**64  # some clients draw negative seeds
        if kind in ("logit_bias", *_SAMPLING):
            return replace(params, sampling=replace(params.sampling, **{kind: value}))
        return params if value is None else replace(params, **{kind: value})
    except (ValueError, TypeError, OverflowError) as error:
        message = str(error) if kind == name else f"{name}: {error}"
        raise Refusal(400, message, name) from error


def hints_of(body: Body) -> dict[str, Any]:
    """Return what a request says about thinking and style, as template variables.

    If the template reads none of them, the model has no such choice.
    """
    reasoning, config = Body(body.object("reasoning")), Body(body.object("output_config"))
    effort = body.text("reasoning_effort") or reasoning.text("effort") or config.text("effort")
    verbosity = body.text("verbosity") or Body(body.object("text")).text("verbosity")
    found: dict[str, Any] = {"reasoning_effort": effort, "verbosity": verbosity}
    found = {name: text for name, text in found.items() if text}
    if thinking := Body(body.object("thinking")).text("type"):
        found["enable_thinking"] = thinking != "disabled"
    for name in ("think", "enable_thinking"):
        if name in body:
            found["enable_thinking"] = body.is_on(name)
    return found


def _prediction(body: Body) -> str:
    """Return the predicted text: OpenAI's object with its content, or the text itself."""
    stated = body.get("prediction")
    content = stated.get("content") if isinstance(stated, Mapping) else stated
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        content = "".join(texts) if len(texts) == len(parts) else None
    if not isinstance(content, str):
        raise Refusal(400, "prediction must have a content, which is a text", "prediction")
    return content


def _bias(stated: Mapping[str, Any]) -> dict[int, float]:
    try:
        return {int(token): float(bias) for token, bias in stated.items()}
    except (TypeError, ValueError, OverflowError) as error:
        message = "logit_bias must give a number for token ids"
        raise Refusal(400, message, "logit_bias") from error

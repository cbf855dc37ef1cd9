"""From the fields of a request to the settings of its replies."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxspec.params import GenerationParams, Grammar
from mlxspec_server.body import Body
from mlxspec_server.refusals import Refusal

MOST_REPLIES = 16
_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "xtc_probability", "xtc_threshold"),
)
_FILES = "the server answers with the models that it was given"


@dataclass(frozen=True)
class Ask:
    """What a request asks for, besides its prompt.

    Attributes:
        model: The name of the model, "" for the server's.
        params: Settings of the first reply; each further one has the next seed.
        is_streamed: Whether the reply comes as it is written.
        num_replies: Replies to the prompt.
        num_logprobs: The likeliest tokens to tell at each position; None to tell none.
    """

    model: str
    params: GenerationParams
    is_streamed: bool
    num_replies: int = 1
    num_logprobs: int | None = None

    def seeds(self) -> list[int]:
        """Return the seed of each reply."""
        return [(self.params.seed + index) % 2**64 for index in range(self.num_replies)]


def ask_of(
    body: Body,
    defaults: GenerationParams,
    *,
    most: Sequence[str] = ("max_completion_tokens", "max_tokens"),
    stop: str = "stop",
    num_logprobs: int | None = None,
) -> Ask:
    """Return what a request asks for.

    Args:
        body: Its fields.
        defaults: Settings where it names none.
        most: Names of the field with the most tokens, the first given one counts.
        stop: Name of the field with the texts that end a reply.
        num_logprobs: As in `Ask`.

    Raises:
        Refusal: A field is of the wrong type, out of range, or not supported.
    """
    for name in ("draft_model", "adapter", "adapters", "adapter_path"):
        body.refuse(name, _FILES)
    given: dict[str, Any] = {}
    for name, kind in (
        (body.first(*most), "max_tokens"),
        (stop, "stop"),
        ("seed", "seed"),
        ("num_draft_tokens", "num_draft_tokens"),
        ("chat_template_kwargs", "chat_template_args"),
    ):
        if name in body:
            given[kind] = body.get(name)
    if isinstance(given.get("seed"), int):
        given["seed"] %= 2**64  # some clients draw a negative one
    given |= {"prediction": _prediction(body)} if "prediction" in body else {}
    seed = random.SystemRandom().getrandbits(32)
    try:
        sampling = {name: body.get(name) for name in _SAMPLING if name in body}
        if "logit_bias" in body:
            sampling["logit_bias"] = _bias(body.object("logit_bias"))
        params = replace(
            defaults,
            sampling=replace(defaults.sampling, **sampling),
            **({"seed": seed} | given),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise Refusal(400, str(error)) from error
    if schema := schema_of(body.object("response_format")):
        params = fitting(params, schema)
    return Ask(
        model=body.text("model"),
        params=params,
        is_streamed=body.is_on("stream"),
        num_replies=body.whole("n", 1, 1, MOST_REPLIES),
        num_logprobs=num_logprobs,
    )


def schema_of(format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON schema of a response format; None for text.

    Raises:
        Refusal: The format is not known, or has no schema.
    """
    kind = format.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    stated = format.get("json_schema", format) if kind == "json_schema" else None
    schema = stated.get("schema") if isinstance(stated, Mapping) else None
    if not isinstance(schema, Mapping):
        allowed = "text, json_object, or json_schema with a schema"
        raise Refusal(400, f"response_format must be {allowed}", "response_format")
    return schema


def fitting(params: GenerationParams, schema: Mapping[str, Any]) -> GenerationParams:
    """Return settings of a reply that fits a schema.

    Raises:
        Refusal: The schema is none.
    """
    try:
        return replace(params, grammar=Grammar.json_schema(dict(schema)))
    except ValueError as error:
        raise Refusal(400, str(error), "response_format") from error


def _prediction(body: Body) -> str:
    """Return the predicted text: OpenAI's object with its content, or the text itself."""
    stated = body.get("prediction")
    content = stated.get("content") if isinstance(stated, Mapping) else stated
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise Refusal(400, "prediction must have a content, which is a text", "prediction")
    return content


def _bias(stated: Mapping[str, Any]) -> dict[int, float]:
    try:
        return {int(token): float(bias) for token, bias in stated.items()}
    except (TypeError, ValueError) as error:
        message = "logit_bias must give a number for token ids"
        raise Refusal(400, message, "logit_bias") from error

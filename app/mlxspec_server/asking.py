"""Turns the fields of a request into the settings of its replies, and into the format they fit."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mlxspec.params import GenerationParams, Grammar
from mlxspec.params.table import SAMPLING
from mlxspec_server.body import Body, Refusal
from mlxspec_server.tools.choice import ToolChoice
from mlxspec_server.turns import Chat

T = TypeVar("T")

MOST_REPLIES = 16
MOST_LOGPROBS = 20
NO_TOOLS = ToolChoice()

_NAMES = {
    "max_tokens": "max_output_tokens max_completion_tokens max_tokens n_predict max_new_tokens",
    "stop": "stop stop_sequences",
    "seed": "seed random_seed",
    "stop_tokens": "stop_token_ids",
    "ignore_eos": "ignore_eos",
    "num_draft_tokens": "num_draft_tokens",
    "exact": "exact",
    "think_tokens": "think_tokens budget_tokens thinking_budget thinking_budget_tokens "
    "thinking_token_budget",
    **{
        row.name: row.name
        for row in SAMPLING
        if row.range.kind in (int, float) and row.name != "min_tokens_to_keep"  # of no API
    },
}
"""The field names of each setting; the first one present in a request counts."""

_USUAL: dict[str, tuple[Any, Any]] = {
    "max_tokens": (-1, 2**31),
    "seed": (-1, None),
    "stop": ("", ()),
    "repetition_penalty": (0, 1.0),
}
"""The value by which other programs mean "default", and the setting here.

llama.cpp sends -1 for a length up to the context and for a random seed; mlx-lm sends 0 for a
penalty that is off.
"""

_EFFORTS = {
    **{"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576},
    **{"xhigh": -1, "max": -1},
}
"""The limit of reasoning tokens at each effort; -1 for none."""

_THINKING = {"enabled": True, "adaptive": True, "auto": True, "disabled": False}

_OBJECT = {"type": "object"}


@dataclass(frozen=True)
class Ask:
    """What a request asks for: the replies to a chat, or to prompts without a template."""

    model: str  # "" for the server's main model
    params: GenerationParams  # of the first reply to a prompt; each further one has the next seed
    is_streamed: bool
    num_replies: int = 1  # over all prompts; the replies to the first prompt come first
    num_logprobs: int | None = None  # most probable tokens to report; None for no logprobs
    chat: Chat | None = None
    prompts: Sequence[Any] = ()  # texts or token ids, not yet checked
    choice: ToolChoice = NO_TOOLS  # the tools that the model may or must call

    @property
    def num_prompts(self) -> int:
        return len(self.prompts) or 1


def ask_of(body: Body, defaults: GenerationParams, **more: Any) -> Ask:
    """Return what a request asks for; `defaults` fill in absent fields, `more` is known already."""
    body.refuse_others()
    params = replace(defaults, seed=random.SystemRandom().getrandbits(32))
    for name, limit in _limits_of(body, defaults.think_tokens):
        params = _with(params, name, "think_tokens", limit)
    for kind, names in _NAMES.items():
        name = next((name for name in names.split() if name in body), "")
        if name:
            params = _with(params, name, kind, body.get(name))
    if "logit_bias" in body:
        params = _with(params, "logit_bias", "logit_bias", _bias(body.object("logit_bias")))
    if "prediction" in body:
        params = _with(params, "prediction", "prediction", _prediction(body))
    stated = body.object("chat_template_kwargs")
    args = {**defaults.chat_template_args, **_hints_of(body), **stated}
    params = _with(params, "chat_template_kwargs", "chat_template_args", args)
    return Ask(
        model=body.text("model"),
        params=replace(params, grammar=_grammar_of(body) or params.grammar),
        is_streamed=body.is_on("stream"),
        num_replies=body.whole("n", 1, 1, MOST_REPLIES),
        **more,
    )


def _with(params: GenerationParams, name: str, kind: str, value: Any) -> GenerationParams:
    """Return the settings with the value of one request field.

    `name` is the field in the request, for messages; `kind` is our name of the setting.
    """
    usual, settled = _USUAL.get(kind, (None, None))
    if value == usual and type(value) is not bool:
        value = settled
    try:
        if kind == "stop" and isinstance(value, list):
            value = [text for text in value if text != ""]
        if kind == "seed" and type(value) is int:
            value %= 2**64  # some clients draw negative seeds
        if hasattr(params.sampling, kind):
            return replace(params, sampling=replace(params.sampling, **{kind: value}))
        return params if value is None else replace(params, **{kind: value})
    except (ValueError, TypeError, OverflowError) as error:
        message = str(error) if kind == name else f"{name}: {error}"
        raise Refusal(400, message, name) from error


def _hints_of(body: Body) -> dict[str, Any]:
    """Return what a request says about thinking and style, as template variables.

    If the template reads none of them, the model has no such choice.
    """
    verbosity = body.text("verbosity") or body.part("text").text("verbosity")
    found: dict[str, Any] = {"reasoning_effort": _effort_of(body), "verbosity": verbosity}
    found = {name: text for name, text in found.items() if text}
    for _, thinks in _switches_of(body):
        found["enable_thinking"] = thinks
    return found


def _limits_of(body: Body, usual: int) -> Iterator[tuple[str, Any]]:
    """Yield limits of reasoning tokens, with the fields that state them; the last one counts."""
    switches = dict(_switches_of(body))
    yield from ((name, -1) for name, thinks in switches.items() if thinks and usual == 0)
    if effort := _effort_of(body):
        yield "reasoning_effort", _of("reasoning_effort", effort, _EFFORTS)
    yield from ((name, 0) for name, thinks in switches.items() if not thinks)
    if "budget_tokens" in (thinking := body.part("thinking")):
        yield "thinking.budget_tokens", thinking.get("budget_tokens")


def _effort_of(body: Body) -> str:
    reasoning, config = body.part("reasoning"), body.part("output_config")
    return body.text("reasoning_effort") or reasoning.text("effort") or config.text("effort")


def _switches_of(body: Body) -> Iterator[tuple[str, bool]]:
    """Yield the fields that say whether a model thinks at all, and what they say."""
    if kind := body.part("thinking").text("type"):
        yield "thinking", _of("thinking.type", kind, _THINKING)
    for name in ("think", "enable_thinking"):
        if name in body:
            yield name, body.is_on(name)


def _of(name: str, word: str, meanings: Mapping[str, T]) -> T:
    if word not in meanings:
        message = f"{name} must be one of {', '.join(meanings)}; got {word!r:.60}"
        raise Refusal(400, message, name.partition(".")[0])
    return meanings[word]


def _prediction(body: Body) -> str:
    """Return the predicted text: OpenAI's object with its content, or the text itself."""
    stated = body.get("prediction")
    content = stated.get("content") if isinstance(stated, Mapping) else stated
    if isinstance(content, list):
        found = (part.get("text") if isinstance(part, Mapping) else None for part in content)
        texts: list[Any] = list(found)
        content = "".join(texts) if all(isinstance(text, str) for text in texts) else None
    if not isinstance(content, str):
        raise Refusal(400, "prediction must have a content, which is a text", "prediction")
    return content


def _bias(stated: Mapping[str, Any]) -> dict[int, float]:
    try:
        return {int(token): float(bias) for token, bias in stated.items()}
    except (TypeError, ValueError, OverflowError) as error:
        message = "logit_bias must give a number for token ids"
        raise Refusal(400, message, "logit_bias") from error


# ---- the format of a reply -------------------------------------------------------------------


def _grammar_of(body: Body) -> Grammar | None:
    found = list(_formats_of(body))
    if len(found) > 1:
        (first, _, _), (second, _, _) = found[:2]
        message = f"a reply fits one format: give {first} or {second}"
        raise Refusal(400, message, second.partition(".")[0])
    for place, make, value in found:
        try:
            return make(value)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"{place}: {error}", place.partition(".")[0]) from error
    return None


def _formats_of(body: Body) -> Iterator[tuple[str, Callable[[Any], Grammar], Any]]:
    for place, format in (
        ("response_format", body.object("response_format")),
        ("text.format", body.part("text").object("format")),
        ("output_config.format", body.part("output_config").object("format")),
        ("output_format", body.object("output_format")),
    ):
        schema = _schema_of(place, format)
        if schema is not None:
            yield place, _of_schema, schema
    own = body.part("structured_outputs")
    own.refuse("structural_tag", "give json, regex, choice or grammar")
    for name, make in _READERS.items():
        for place, fields, key in (
            (f"guided_{name}", body, f"guided_{name}"),
            (f"structured_outputs.{name}", own, name),
        ):
            if key in fields and fields.get(key) is not False:
                yield place, make, fields.get(key)
    for place, name in (("json_schema", "json"), ("regex", "regex"), ("grammar", "grammar")):
        if place in body and body.get(place) != "":
            yield place, _READERS[name], body.get(place)


def _schema_of(place: str, format: Mapping[str, Any]) -> Any:
    """Return the JSON schema of a format; None for text."""
    kind = format.get("type", "text")
    if kind == "json_object":
        schema = format.get("schema")
        return _OBJECT if schema is None else schema
    if kind == "text" and not {"schema", "json_schema"} & format.keys():
        return None
    stated = format.get("json_schema", format) if kind == "json_schema" else None
    schema = stated.get("schema") if isinstance(stated, Mapping) else None
    if schema is None:
        allowed = "text, json_object, or json_schema with a schema"
        raise Refusal(400, f"{place} must be {allowed}", place.partition(".")[0])
    return schema


def _of_schema(schema: Any) -> Grammar:
    """Return the grammar of a schema: {} and true allow every JSON value."""
    if isinstance(schema, str):  # never the path of a file
        schema = json.loads(schema)
        if isinstance(schema, str):
            raise ValueError("the JSON schema must be an object of JSON, or true; got a text")
    return Grammar.json_schema(schema)


def _of_lark(source: Any) -> Grammar:
    if isinstance(source, str) and "::=" in source:
        raise ValueError("GBNF and EBNF are not read: give a grammar in Lark's syntax, or a schema")
    return Grammar.lark(source)


def _of_object(value: Any) -> Grammar:
    if value is not True:
        raise ValueError("it must be true or false")
    return Grammar.json_schema(_OBJECT)


_READERS: dict[str, Callable[[Any], Grammar]] = {
    "json": _of_schema,
    "json_object": _of_object,
    "regex": Grammar.regex,
    "choice": Grammar.choices,
    "grammar": _of_lark,
}
"""Readers of vLLM's kinds of format."""

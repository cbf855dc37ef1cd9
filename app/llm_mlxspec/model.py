"""A model of mlxspec as `llm` asks it: options, conversations, JSON schemas, streamed text.

The cache of the conversation that was last answered is kept: its next turn reads the new message.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import llm
from pydantic import Field, create_model

from mlxspec.errors import MlxspecError
from mlxspec.params import GenerationParams, Grammar, SamplingParams
from mlxspec.params.table import GENERATION, SAMPLING

_SPEED = ("generation_tps", "ttft_s", "reused_tokens")
_TOLD = ("drafted", "accepted", "acceptance_rate", *_SPEED)
_ROWS = {
    row.name: row
    for row in (*SAMPLING, *GENERATION)
    if row.flag and row.range.kind is not None and not row.repeats and row.name != "grammar"
}


_FIELDS: dict[str, Any] = {
    name: (cast(Any, row.range.kind) | None, Field(default=None, description=row.help))
    for name, row in _ROWS.items()
}


class MlxspecModel(llm.Model):
    """A model that answers in this process."""

    can_stream = True
    supports_schema = True
    Options: Any = create_model("Options", __base__=llm.Options, **_FIELDS)

    def __init__(self, model_id: str, source: str | None) -> None:
        """Describe a model; nothing is loaded before it is asked. `source` is as in `load`."""
        self.model_id, self._source = model_id, source
        self._talk: Any = None

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[str]:
        """Yield the text of a reply as it is written."""
        from mlxspec.trace.events import GenerationFinished, text_of

        try:
            talk = self._talk_of(prompt, conversation)
            for event in talk.reply(prompt.prompt or "", self._params(prompt)):
                if text := text_of(event):
                    yield text
                if isinstance(event, GenerationFinished):
                    stats = event.stats
                    response.response_json = {name: stats[name] for name in _TOLD}
                    response.set_usage(
                        input=stats["prompt_tokens"], output=stats["generated_tokens"]
                    )
        except (MlxspecError, ValueError) as error:
            raise llm.ModelError(str(error)) from error

    @cached_property
    def _engine(self) -> Any:
        from mlxspec import load  # now: it needs MLX

        return load(self._source, say=lambda line: None)

    def _talk_of(self, prompt: llm.Prompt, conversation: llm.Conversation | None) -> Any:
        """Return the chat of a prompt, with its cache if it is the one that was answered last."""
        from mlxspec import Conversation

        system = prompt.system or None
        turns = _turns(conversation.responses if conversation else ())
        if system is None and conversation and conversation.responses:
            system = conversation.responses[0].prompt.system or None
        talk = self._talk
        if talk is None or talk.turns != turns or talk.system != system:
            talk = self._talk = Conversation(self._engine, say=lambda line: None)
            talk.restore(turns, system)
        return talk

    def _params(self, prompt: llm.Prompt) -> GenerationParams:
        options = prompt.options.model_dump()
        given = {name: value for name, value in options.items() if value is not None}
        names = {row.name for row in SAMPLING} & given.keys()
        sampling = SamplingParams(**{name: given.pop(name) for name in names})
        if prompt.schema:
            given["grammar"] = Grammar.json_schema(prompt.schema)
        return GenerationParams(sampling=sampling, **given)


def _turns(responses: Sequence[Any]) -> list[tuple[str, str]]:
    return [(one.prompt.prompt or "", one.text_or_raise()) for one in responses]

"""`mlxspec models`: the models on this machine, or the drafters for one of them.

`--fetch` downloads the default model; `--json` prints one JSON document.
"""

import json
import textwrap
from argparse import Namespace
from dataclasses import asdict

from mlxspec.device.memory import usable_gb
from mlxspec.drafting.catalogue import DrafterFinder, list_models
from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec.loading import fetch_default_model
from mlxspec.loading.fetch.sources import find_local, source_named
from mlxspec_cli.output import harmless

_INDENT = "    "


def run(args: Namespace) -> int:
    """List local models, or the drafters of one, or fetch the default model.

    Raises:
        ModelNotFoundError: The default model cannot be downloaded.
        ValueError: The model whose drafters are to be listed is not on this machine.
    """
    if args.fetch:
        print(fetch_default_model())
        return 0
    if args.model is None:
        models = list_models()
        rows = {"memory_gb": usable_gb(), "models": [asdict(model) for model in models]}
        text = "\n".join(map(_model_text, models))
    else:
        if find_local(args.model) is None:
            source_named(args.model)  # several of that name are another mistake
            raise ValueError(f"{args.model!r} is not here; `mlxspec models` lists what is")
        drafters = DrafterFinder().find(args.model)
        rows = {"model": args.model, "drafters": [asdict(drafter) for drafter in drafters]}
        text = "\n".join(map(_drafter_text, drafters))
    print(json.dumps(rows, indent=1) if args.json else text)
    return 0


def _model_text(model: ModelEntry) -> str:
    if not model.is_here:
        return f"{model.source}  is not here yet: mlxspec models --fetch gets it (93 MB)"
    if not model.packing:
        return f"{model.source}  {model.size_gb:.2f} GB\n{_wrapped('cannot run: ' + model.problem)}"
    memory = usable_gb()
    state = f"cannot chat: {model.problem}" if model.problem else _fit(model, memory)
    context = f"context {model.context_length:,}, " if model.context_length else ""
    bound = "at most " if model.is_bound else ""
    rows = (
        f" at {model.memory_tokens:,} tokens" if model.memory_tokens else " without keys and values"
    )
    facts = (
        f"{model.architecture}, {model.packing}, {context}takes {bound}{model.memory_gb:.1f} of "
        f"{memory:.1f} GB memory{rows}; {model.drafts}"
    )
    return f"{model.source}  {model.size_gb:.2f} GB  {state}\n{_wrapped(harmless(facts))}"


def _fit(model: ModelEntry, memory_gb: float) -> str:
    return {"fits": "ready", "tight": "ready, tight"}.get(model.fit_in(memory_gb), "does not fit")


def _drafter_text(entry: DrafterEntry) -> str:
    speed = f"  {entry.tokens_per_s:.1f} tokens/s" if entry.tokens_per_s is not None else ""
    fastest = ", the fastest" if entry.is_fastest else ""
    if entry.problem:
        return f"{entry.drafter}\n{_wrapped('not for this model: ' + entry.problem)}"
    return f"{entry.drafter}{speed}{fastest}\n{_wrapped(entry.meaning)}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 96, initial_indent=_INDENT, subsequent_indent=_INDENT)

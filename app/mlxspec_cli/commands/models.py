"""`mlxspec models`: the models on this machine, or the drafters for one of them."""

import json
import textwrap
from argparse import Namespace
from dataclasses import asdict

from mlxspec.device.memory import usable_gb
from mlxspec.drafting.catalogue import DrafterFinder, list_models, list_offers
from mlxspec.drafting.entries import DrafterEntry, ModelEntry
from mlxspec.loading.fetch.offers import offers_date
from mlxspec.loading.fetch.sources import find_local, find_source, source_named
from mlxspec_cli.output import harmless

_INDENT = "    "
_EXACT_BELOW = 10
_HEADING = "Worth downloading, as of {}: mlxspec models --fetch NAME"


def run(args: Namespace) -> int:
    """List local models, or the drafters of one, or fetch one."""
    if args.fetch:
        # On a terminal, the download shows its own progress bar; a second run resumes it.
        print(find_source(args.model).path)
        return 0
    if args.model is None:
        models, offered = list_models(), list_offers()
        rows = {
            "memory_gb": usable_gb(),
            "models": [asdict(model) for model in models],
            "offers": [asdict(offer) for offer in offered],
        }
        lines = [*map(_model_text, models), "", _HEADING.format(offers_date())]
        text = "\n".join([*lines, *map(_offer_text, offered)] if offered else lines[:-2])
    else:
        if find_local(args.model) is None:
            source_named(args.model)  # reports a name that several models share
            raise ValueError(f"{args.model!r} is not here; `mlxspec models` lists what is")
        drafters = DrafterFinder().find(args.model)
        rows = {"model": args.model, "drafters": [asdict(drafter) for drafter in drafters]}
        text = "\n".join(map(_drafter_text, drafters))
    print(json.dumps(rows, indent=1) if args.json else text)
    return 0


def _model_text(model: ModelEntry) -> str:
    if not model.is_here:
        return f"{_name(model)}  is not here yet: mlxspec models --fetch downloads it (93 MB)"
    name = _name(model)
    if not model.packing:
        return f"{name}  {model.size_gb:.2f} GB\n{_wrapped('cannot run: ' + model.problem)}"
    memory = usable_gb()
    state = {"fits": "ready", "tight": "ready, a tight fit"}.get(
        model.fit_in(memory), "does not fit"
    )
    if model.problem:
        state = f"cannot chat: {model.problem}"
    context = f"context {model.context_length:,}, " if model.context_length else ""
    bound = "at most " if model.is_bound else ""
    rows = (
        f" at {model.memory_tokens:,} tokens" if model.memory_tokens else " without keys and values"
    )
    facts = (
        f"{model.architecture}, {model.packing}, {context}takes {bound}{model.memory_gb:.1f} of "
        f"{memory:.1f} GB memory{rows}; {model.drafts}"
    )
    return f"{name}  {model.size_gb:.2f} GB  {state}\n{_wrapped(harmless(facts))}"


def _name(model: ModelEntry) -> str:
    """Return the name of a model, as in the header of a chat, and its other names."""
    other = "" if model.source == model.name else f" ({model.source})"
    return harmless(f"{model.name}{other}")


def _offer_text(offer: ModelEntry) -> str:
    fit = {"fits": "fits", "tight": "fits, tightly"}.get(offer.fit_in(usable_gb()), "does not fit")
    facts = f"{offer.licence}; {fit}"
    if speed := offer.expected_tps:
        digits = 0 if speed >= _EXACT_BELOW else 1
        facts += f"; about {speed:.{digits}f} tokens/s without guesses"
    facts += "; recommended for this machine" * offer.is_recommended
    return f"{offer.source}  {offer.size_gb:.2f} GB to download\n{_wrapped(facts)}"


def _drafter_text(entry: DrafterEntry) -> str:
    speed = f"  {entry.tokens_per_s:.1f} tokens/s" if entry.tokens_per_s is not None else ""
    fastest = ", the fastest" if entry.is_fastest else ""
    if entry.problem:
        return f"{entry.drafter}\n{_wrapped('not for this model: ' + entry.problem)}"
    return f"{entry.drafter}{speed}{fastest}\n{_wrapped(entry.meaning)}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 96, initial_indent=_INDENT, subsequent_indent=_INDENT)

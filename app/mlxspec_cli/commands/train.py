"""`mlxspec train`: train a drafter for a model on the model's own text, step by step.

Each step writes its files into one folder per model, for the next step.
"""

import hashlib
import json
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mlxspec.device import backend
from mlxspec.drafters.table.building import build_table
from mlxspec.drafters.table.file import save_table
from mlxspec.drafting.engines import prepare_loaded
from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel, load_model
from mlxspec.loading.heads.file import fingerprint, own_folder
from mlxspec.loading.records import cache_folder
from mlxspec.measure.tables import as_json
from mlxspec.params import Options
from mlxspec.text.seed_text import read_seed, write_seed
from mlxspec.train.data.corpus import DataSettings, load_corpus
from mlxspec.train.data.making import DataProgress, estimate_memory, make_corpus
from mlxspec.train.evaluate import as_table, evaluate, heldout_prompts
from mlxspec.train.features import missing_shards, shard_paths, write_shards
from mlxspec.train.heads import KINDS, build_objective, memory_gb, target_of, train_head
from mlxspec.train.methods.table import observe
from mlxspec.train.objective import capture_layers
from mlxspec.train.own_table import SETTINGS, TableProgress, TableVerdict, make_own_table
from mlxspec.train.recipe import Recipe, default_recipe, load_recipe
from mlxspec.train.trainer import Progress
from mlxspec_cli.arguments import REPLY_FLAGS
from mlxspec_cli.output import say

_TABLE_BYTES_PER_TOKEN = 500


def run(args: Namespace) -> int:
    """Run one step; after Ctrl-C the next run of most steps resumes."""
    loaded = load_model(args.model)
    name = fingerprint(loaded.config, loaded.tokenizer)
    folder = args.folder or cache_folder() / "training" / name
    try:
        STEPS[args.step](args, loaded, folder)
    except KeyboardInterrupt:
        # these steps store no intermediate results
        starts_again = args.step in ("table", "seed-text", "eval")
        starts_again &= getattr(args, "minutes", None) is None
        say(f"stopped; the same command {'starts again' if starts_again else 'resumes here'}")
        return 130
    return 0


def _data(args: Namespace, loaded: LoadedModel, root: Path) -> None:
    settings = DataSettings(
        num_tokens=args.tokens, batch_size=args.batch_size, seed=args.seed, prompts=args.prompts
    )
    _print_memory(estimate_memory(loaded, settings) / backend.GB)
    with _bar(args.tokens, "writing") as bar:

        def show(progress: DataProgress) -> None:
            dropped = sum(progress.dropped.values())
            text = f"conversations={progress.num_conversations}, dropped={dropped}"
            bar.set_postfix_str(text, refresh=False)
            bar.update(progress.num_tokens - bar.n)

        made = make_corpus(loaded, root / "corpus", settings, show)
    say(
        f"{made.num_tokens} tokens in {made.num_conversations} conversations; {made.num_heldout} "
        "of these are held out, to judge drafters by"
        + ("" if made.num_heldout else ": training needs some, so ask for more --tokens")
    )
    print(root / "corpus")


def _features(args: Namespace, loaded: LoadedModel, root: Path) -> None:
    conversations = load_corpus(args.corpus or root / "corpus", loaded.config.vocab_size)
    folder = root / "features"
    shards = missing_shards(
        conversations, folder, max_heldout=args.heldout, max_train_shards=args.shards
    )
    sizes = [sum(len(conversations[index].tokens) for index in members) for _, members in shards]
    layers = capture_layers(loaded.config.num_hidden_layers)
    row_bytes = 4 * loaded.config.hidden_size * (1 + len(layers))
    _print_memory((loaded.model.nbytes + 3 * row_bytes * max(sizes, default=0)) / backend.GB + 1.0)
    with _bar(sum(sizes), "reading") as bar:
        write_shards(loaded.model, conversations, shards, folder, layers, bar.update)
    print(folder)


def _table(args: Namespace, loaded: LoadedModel, root: Path) -> None:
    if args.minutes is not None:
        _own_table(args, loaded, root)
        return
    vocab_size = loaded.config.vocab_size
    conversations = load_corpus(args.corpus or root / "corpus", vocab_size)
    tokens = sum(len(conversation.tokens) for conversation in conversations)
    _print_memory(0.5 + tokens * _TABLE_BYTES_PER_TOKEN / backend.GB)
    shards = shard_paths(args.features or root / "features", "train")
    occurrences = observe(conversations, tqdm(shards, desc="features", disable=None))
    rows = build_table(occurrences, vocab_size, max_bytes=round(args.max_mb * 1e6))
    card = {
        "target": target_of(loaded),
        "tokens_seen": sum(len(one.contexts) for one in occurrences),
        "feature_shards": len(shards),
        "max_bytes": round(args.max_mb * 1e6),
    }
    out = _out(args, loaded)
    save_table(out, rows, vocab_size, tokenizer=loaded.tokenizer.fingerprint, card=card)
    print(out)


def _own_table(args: Namespace, loaded: LoadedModel, root: Path) -> None:
    """Make a table of what the model writes now; print its path if it is kept."""
    for name in ("corpus", "features"):
        if getattr(args, name) is not None:
            raise ValueError(f"--minutes lets the model write the text itself: leave out --{name}")
    out, size = _out(args, loaded), round(args.max_mb * 1e6)
    _print_memory(estimate_memory(loaded, SETTINGS) / backend.GB)
    making = make_own_table(loaded, 60 * args.minutes, folder=root, out=out, max_bytes=size)
    with closing(making), tqdm(total=100, unit="%", desc="writing", disable=None) as bar:
        for told in making:
            if isinstance(told, TableProgress):
                bar.set_postfix_str(f"{told.num_tokens} tokens", refresh=False)
                bar.update(round(100 * told.share) - bar.n)
    say(str(told))
    if isinstance(told, TableVerdict) and told.is_better:
        print(out)


def _seed_text(args: Namespace, loaded: LoadedModel, root: Path) -> None:
    conversations = load_corpus(args.corpus or root / "corpus", loaded.config.vocab_size)
    before = read_seed(args.add) if args.add else []
    answers = [
        loaded.tokenizer.decode(one.tokens[start:end].tolist())
        for one in conversations
        if not one.is_heldout
        for start, end in one.spans()
    ]
    out = args.out or root / "seed-text.xz"
    chosen = write_seed(out, [*before, *answers], round(args.max_mb * 1e6))
    size_mb, dropped = out.stat().st_size / 1e6, len(before) + len(answers) - len(chosen)
    say(f"{len(chosen)} texts in {size_mb:.2f} MB; {dropped} were left out")
    print(out)


def _head(args: Namespace, loaded: LoadedModel, root: Path) -> None:
    recipe = recipe_of_arguments(args)
    features = args.features or root / "features"
    # a folder per recipe: a changed one must not resume another
    text = json.dumps(asdict(recipe), sort_keys=True)
    folder = root / f"{recipe.kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    objective = build_objective(loaded, features, recipe, folder)
    _print_memory(memory_gb(loaded, objective))
    out = _out(args, loaded)
    with _bar(recipe.tokens, recipe.kind) as bar:

        def show(progress: Progress) -> None:
            bar.set_postfix_str(progress_text(progress), refresh=False)
            bar.update(progress.tokens - bar.n)

        train_head(loaded, objective, features, recipe, folder, out, show)
    print(out)


def _eval(args: Namespace, loaded: LoadedModel, root: Path) -> None:
    for temperature in args.temps:
        REPLY_FLAGS["temperature"].asked.check("--temps", temperature)
    prepared = prepare_loaded(loaded, Options(args.drafter, branching=args.branching), say=say)
    vocab_size = prepared.engine.target.vocab_size
    conversations = load_corpus(args.corpus or root / "corpus", vocab_size)
    prompts = heldout_prompts(conversations, args.answers)
    if not prompts:
        raise MlxspecError(
            "the corpus holds no greedy answer that was held out: make more of it with `mlxspec "
            "train data`"
        )
    with tqdm(desc="answering", disable=None) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        results = evaluate(
            prepared.engine,
            prepared.make_drafter,
            prompts,
            num_draft_tokens=args.nodes,
            temperatures=args.temps,
            max_tokens=args.max_tokens,
            on_progress=show,
        )
    figures = {"drafter": prepared.choice.drafter, "figures": as_json(results)}
    print(json.dumps(figures) if args.json else as_table(results))


STEPS: dict[str, Callable[[Namespace, LoadedModel, Path], None]] = {
    "data": _data,
    "features": _features,
    "table": _table,
    "seed-text": _seed_text,
    **dict.fromkeys(KINDS, _head),
    "eval": _eval,
}


def recipe_of_arguments(args: Namespace) -> Recipe:
    """Return the recipe of a file, or the default one, with the changes of the arguments."""
    recipe = load_recipe(args.recipe) if args.recipe else default_recipe(args.step)
    if recipe.kind != args.step:
        raise ValueError(
            f"{args.recipe} is a recipe for {recipe.kind!r}: give one for {args.step!r}, or run "
            f"another step; choose from {', '.join(KINDS)}"
        )
    changes = {name: getattr(args, name) for name in ("tokens", "seed")}
    return replace(recipe, **{name: value for name, value in changes.items() if value is not None})


def progress_text(progress: Progress) -> str:
    """Return the loss and the held-out acceptance by depth, for a progress bar."""
    parts = [f"loss {progress.loss:.3f}"]
    if progress.curve:
        last = progress.curve[-1]
        depths = " ".join(f"{rate:.2f}" for rate in last.get("top1_by_depth", ()))
        parts.append(f"held out {last['mean_acceptance_length']:.2f} ({depths})")
    return ", ".join(parts)


def _out(args: Namespace, loaded: LoadedModel) -> Path:
    """Return the file to write; creates its folder."""
    name = fingerprint(loaded.config, loaded.tokenizer)
    path: Path = args.out or own_folder() / f"{name}-{args.step}.safetensors"
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder: name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _print_memory(gb: float) -> None:
    say(f"takes about {gb:.1f} GB of memory; this machine has {backend.memory_gb():.1f} GB")


def _bar(tokens: int, doing: str) -> "tqdm[Any]":
    return tqdm(total=tokens, unit="tok", unit_scale=True, desc=doing, disable=None)

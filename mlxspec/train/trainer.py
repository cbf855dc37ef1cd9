"""The training loop of all trained drafters.

A checkpoint holds everything that a step depends on. So an interrupted run ends with the same
weights as an uninterrupted one, bit for bit, on the same machine.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
from mlx import nn
from mlx.utils import tree_map, tree_unflatten

from mlxspec.device.core_split import left_to_blas
from mlxspec.errors import MlxspecError
from mlxspec.loading.tensor_files import read_safetensors, write_safetensors
from mlxspec.train.data.corpus import GREEDY
from mlxspec.train.features import Features, read_shard, shard_paths, shards_of_run
from mlxspec.train.objective import Objective, flat
from mlxspec.train.recipe import Recipe


@dataclass
class Progress:
    """The state of a run: all that a checkpoint holds besides weights and optimizer."""

    tokens: int = 0  # assistant tokens so far
    step: int = 0
    epoch: int = 0  # number of finished passes over the corpus
    shard: int = 0  # index of the current shard
    conversation: int = 0  # number of used conversations of this shard
    loss: float = 0.0  # mean loss per token, an exponential average over the steps
    best: float = 0.0  # best mean acceptance length so far
    stale: int = 0  # evaluations since then
    seconds: float = 0.0  # seconds of training, earlier parts of the run included
    curve: list[dict[str, Any]] = field(default_factory=list)  # figures of every evaluation


Report = Callable[[Progress], None]
_LOSS_MEMORY = 0.95  # decay of the averaged loss


@left_to_blas()
def train(
    objective: Objective,
    features: Path,
    recipe: Recipe,
    folder: Path,
    report: Report = lambda progress: None,
) -> Progress:
    """Train, or continue the interrupted run of this recipe whose checkpoints are in `folder`.

    At the end, the network has the weights with the best mean acceptance length on held-out text.
    """
    run = _Run(objective, features, recipe, folder)
    run.resume()
    started = time.monotonic() - run.progress.seconds
    saved = time.monotonic()
    batches = run.batches()
    while not run.is_over:
        run.step(next(batches))
        run.progress.seconds = time.monotonic() - started
        run.look_if_due()
        report(run.progress)
        if run.is_over or time.monotonic() - saved > recipe.checkpoint_seconds:
            run.save()
            saved = time.monotonic()
    run.restore_best()
    return run.progress


class _Run:
    def __init__(self, objective: Objective, features: Path, recipe: Recipe, folder: Path) -> None:
        self.objective, self.recipe, self.folder = objective, recipe, folder
        self.progress = Progress()
        self._shards = shards_of_run(features, folder)
        self._heldout = [
            conversation
            for path in shard_paths(features, "heldout")
            for conversation in read_shard(path)
        ][: recipe.num_evaluated]
        if not any(GREEDY in conversation.mask for conversation in self._heldout):
            raise MlxspecError(
                f"{features} holds no held-out conversation with a greedy answer, by which "
                "training is judged: make more with `mlxspec train data`"
            )
        self._optimizer = optim.AdamW(
            recipe.learning_rate, weight_decay=recipe.weight_decay, bias_correction=True
        )
        self._optimizer.init(objective.network.trainable_parameters())
        self._gradients = nn.value_and_grad(objective.network, objective.loss)

    @property
    def is_over(self) -> bool:
        """Whether the run has seen all its tokens, or its patience has run out."""
        progress, patience = self.progress, self.recipe.patience
        return progress.tokens >= self.recipe.tokens or 0 < patience <= progress.stale

    def batches(self) -> Iterator[list[Features]]:
        """Yield the conversations of each step; `progress` follows."""
        batch: list[Features] = []
        size = 0
        for conversation in self._conversations():
            batch.append(conversation)
            size += int((conversation.mask > 0).sum())
            if size >= self.recipe.batch_tokens:
                yield batch
                batch, size = [], 0

    def _conversations(self) -> Iterator[Features]:
        progress = self.progress
        while True:
            if progress.shard >= len(self._shards):
                progress.epoch, progress.shard = progress.epoch + 1, 0
            members = list(read_shard(self._shards[progress.shard]))
            while progress.conversation < len(members):
                progress.conversation += 1  # before the yield: a checkpoint counts it as used
                yield members[progress.conversation - 1]
            progress.shard, progress.conversation = progress.shard + 1, 0

    def step(self, batch: Sequence[Features]) -> None:
        num_tokens = sum(int((conversation.mask > 0).sum()) for conversation in batch)
        total, gradients = 0.0, None
        for conversation in batch:
            loss, more = self._gradients(conversation)
            added = more if gradients is None else tree_map(mx.add, gradients, more)
            mx.eval(loss, added)  # frees the graph: memory is that of one conversation
            total, gradients = total + loss.item(), added
        scaled = tree_map(lambda gradient: gradient / num_tokens, gradients)
        clipped, _ = optim.clip_grad_norm(scaled, self.recipe.max_gradient)
        self._optimizer.learning_rate = self._learning_rate()
        self._optimizer.update(self.objective.network, clipped)
        mx.eval(self.objective.network.parameters(), self._optimizer.state)
        progress = self.progress
        mean = total / num_tokens
        decay = _LOSS_MEMORY if progress.step else 0.0
        progress.loss = decay * progress.loss + (1 - decay) * mean
        progress.tokens += num_tokens
        progress.step += 1

    def _learning_rate(self) -> float:
        done = min(self.progress.tokens / self.recipe.tokens, 1.0)
        if done < self.recipe.warmup:
            # + 1e-3: the first step must not have a rate of 0
            return self.recipe.learning_rate * (done + 1e-3) / (self.recipe.warmup + 1e-3)
        rest = (done - self.recipe.warmup) / (1 - self.recipe.warmup)
        return self.recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * rest))

    def look_if_due(self) -> None:
        progress, recipe = self.progress, self.recipe
        due = min((len(progress.curve) + 1) * recipe.evaluate_every, recipe.tokens)
        if progress.tokens < due:
            return
        figures = dict(self.objective.evaluate(self._heldout))
        progress.curve.append({"tokens": progress.tokens, "loss": progress.loss, **figures})
        if figures["mean_acceptance_length"] > progress.best:
            progress.best, progress.stale = figures["mean_acceptance_length"], 0
            write_safetensors(self.folder / "best.safetensors", self._weights())
        else:
            progress.stale += 1

    def save(self) -> None:
        state = {f"optimizer.{k}": v for k, v in flat(self._optimizer.state).items()}
        metadata = {"progress": json.dumps(asdict(self.progress))}
        arrays = {**self._weights(), **state}
        write_safetensors(self.folder / "checkpoint.safetensors", arrays, metadata)

    def resume(self) -> None:
        path = self.folder / "checkpoint.safetensors"
        if not path.exists():
            return
        arrays, metadata = read_safetensors(path)
        try:
            progress = Progress(**json.loads(metadata["progress"]))
        except (KeyError, TypeError, ValueError) as error:
            raise MlxspecError(f"{path} is not a checkpoint of training: delete it") from error
        self._load(path, arrays)
        state = [(k[10:], v) for k, v in arrays.items() if k.startswith("optimizer.")]
        self._optimizer.state = tree_unflatten(state)
        self.progress = progress

    def restore_best(self) -> None:
        path = self.folder / "best.safetensors"
        if path.exists():
            self._load(path, read_safetensors(path)[0])

    def _weights(self) -> dict[str, mx.array]:
        parameters = flat(self.objective.network.trainable_parameters())
        return {f"network.{name}": array for name, array in parameters.items()}

    def _load(self, path: Path, arrays: Mapping[str, mx.array]) -> None:
        weights = {k: v for k, v in arrays.items() if k.startswith("network.")}
        wanted = {name: array.shape for name, array in self._weights().items()}
        if {name: array.shape for name, array in weights.items()} != wanted:
            raise MlxspecError(
                f"{path} holds weights of other shapes, as of another target: give another folder"
            )
        pairs = [(name.removeprefix("network."), array) for name, array in weights.items()]
        self.objective.network.load_weights(pairs, strict=False)

"""Other projects as arms: their own loops, called as their users do, over our weights and BLAS."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.bench.arms import Arm
from mlxspec.device.core_split import left_to_blas
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafting.registry import DrafterContext, build_drafter
from mlxspec.errors import MlxspecError
from mlxspec.loading import Tokenizer
from mlxspec.measure.trial import Trial, Watch
from mlxspec.models import Model, TargetModel
from mlxspec.params import GenerationParams


class PeerMissingError(MlxspecError):
    """The error for a peer that is not installed, or cannot run this model."""


class MlxLmArm:
    """mlx-lm's `stream_generate`, plain or with a draft model."""

    def __init__(
        self, name: str, context: DrafterContext, draft_model: TargetModel | None = None
    ) -> None:
        """A draft model drafts chains of the options' `lookahead`; None is plain decoding."""
        self.name = name
        self._generate = import_module("mlx_lm.generate")
        self._sampling = import_module("mlx_lm.sample_utils")
        self._model = mlx_lm_model(context.loaded.model)
        self._tokenizer = mlx_lm_tokenizer(context)
        self._options: dict[str, Any] = {}
        if draft_model is not None:
            self._options = {
                "draft_model": mlx_lm_model(draft_model),
                "num_draft_tokens": context.options.lookahead,
            }

    def begin(self) -> None:
        """Do nothing: no state outlives a reply."""

    @left_to_blas()
    def write(self, prompt: Sequence[int], params: GenerationParams) -> Trial:
        mx.random.seed(params.seed)
        sampler = self._sampling.make_sampler(temp=params.sampling.temperature)
        tokens: list[int] = []
        drafted: list[bool] = []
        watch = Watch.after_collecting()
        for response in self._generate.stream_generate(
            self._model,
            self._tokenizer,
            list(prompt),
            max_tokens=params.max_tokens,
            sampler=sampler,
            **self._options,
        ):
            watch.saw(1)
            tokens.append(response.token)
            drafted.append(bool(response.from_draft))
        # mlx-lm computes one step ahead: without this wait it would slow down the next arm
        mx.synchronize(self._generate.generation_stream)
        # each forward ends with a bonus token; only the last one may be cut off before it
        forwards = drafted.count(False) + bool(drafted and drafted[-1])
        return watch.trial(tokens, prompt, forwards, None if self._options else forwards)


class DsparkArm:
    """mlx-dspark's loops without a trained drafter: `lookup_generate`, or `greedy_generate`."""

    def __init__(self, name: str, context: DrafterContext, *, drafts: bool) -> None:
        self.name = name
        dspark = import_module("mlx_dspark")
        self._drafts = drafts
        self._loop = dspark.lookup_generate if drafts else dspark.greedy_generate
        self._tokenizer = mlx_lm_tokenizer(context)
        self._target = dspark.Target(mlx_lm_model(context.loaded.model), self._tokenizer)

    def begin(self) -> None:
        """Do nothing: no state outlives a reply."""

    @left_to_blas()
    def write(self, prompt: Sequence[int], params: GenerationParams) -> Trial:
        rows: list[int] = []

        def on_text(_: str) -> None:
            if not watch.has_seen:  # the first token comes from the prefill, before any round
                watch.saw(1)

        def on_round(*, drafted: int, committed: int, **_: Any) -> None:
            rows.append(drafted + 1)
            watch.saw(committed + (self._drafts and not watch.has_seen))

        watch = Watch.after_collecting()
        result = self._loop(
            self._target,
            self._tokenizer,
            prompt_ids=list(prompt),
            max_new_tokens=params.max_tokens,
            temperature=params.sampling.temperature,
            seed=params.seed,
            on_text=on_text,
            on_round=on_round,
        )
        mx.synchronize()
        forwards = int(result.target_forwards)  # of which the prompt's may have no round
        tokens = result.token_ids[: params.max_tokens]  # its last round may write one too many
        return watch.trial(tokens, prompt, forwards, sum(rows) + forwards - len(rows))


def build_peer(name: str, context: DrafterContext) -> Arm:
    """Return a peer; `PeerMissingError` if it is not installed, or cannot run this model."""
    try:
        return _BUILDERS[name](name, context)
    except ImportError as error:
        package = "mlx-dspark" if "dspark" in name else "mlx-lm"
        raise PeerMissingError(f"{name} is skipped ({error}): pip install {package}") from error
    except (MlxspecError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise PeerMissingError(f"{name} is skipped: {reason}") from error


def check_peers(names: Sequence[str]) -> None:
    """Raise ValueError for peers that are not known."""
    for name in names:
        if name not in _BUILDERS:
            raise ValueError(f"peer {name!r} is not known; choose from {', '.join(_BUILDERS)}")


def _with_draft_model(name: str, context: DrafterContext) -> Arm:
    drafter = build_drafter("model", context)
    assert isinstance(drafter, DraftModelDrafter)
    return MlxLmArm(name, context, drafter.decoder.model)


_BUILDERS: dict[str, Callable[[str, DrafterContext], Arm]] = {
    "mlx-lm": MlxLmArm,
    "mlx-lm-draft": _with_draft_model,
    "mlx-dspark": lambda name, context: DsparkArm(name, context, drafts=True),
    "mlx-dspark-plain": lambda name, context: DsparkArm(name, context, drafts=False),
}


def mlx_lm_model(model: TargetModel) -> nn.Module:
    """Return mlx-lm's model of the same family, with the same arrays as ours."""
    if not isinstance(model, Model):
        adapted: Any = model
        source: nn.Module = adapted.source
        return source
    config = model.config
    family = "qwen2" if config.model_type == "qwen2" else "llama"
    module = import_module(f"mlx_lm.models.{family}")
    args = asdict(config)
    if any(config.layer_windows):
        args["sliding_window"] = max(filter(None, config.layer_windows))
        args["layer_types"] = [
            "sliding_attention" if window else "full_attention" for window in config.layer_windows
        ]
    theirs: nn.Module = module.Model(module.ModelArgs.from_dict(args))
    packed = {path: part for path, part in model.named_modules() if hasattr(part, "bits")}

    def packing(path: str, _: nn.Module) -> bool | dict[str, Any]:
        names = ("group_size", "bits", "mode")
        return path in packed and {name: getattr(packed[path], name) for name in names}

    if packed:
        nn.quantize(theirs, class_predicate=packing)
    theirs.load_weights(list(dict(tree_flatten(model.parameters())).items()), strict=True)
    theirs.eval()
    return theirs


def mlx_lm_tokenizer(context: DrafterContext) -> Any:
    """Return the target's tokenizer in mlx-lm's wrapper, with the same stop tokens as ours."""
    utils = import_module("mlx_lm.tokenizer_utils")
    tokenizer: Tokenizer = context.loaded.tokenizer
    decoder = json.loads(tokenizer.wrapped.backend_tokenizer.to_str())["decoder"] or {}
    is_bytes = "ByteLevel" in json.dumps(decoder)
    kind = utils.BPEStreamingDetokenizer if is_bytes else utils.NaiveStreamingDetokenizer
    stops = {*tokenizer.eos_token_ids, *context.target.eos_token_ids}
    return utils.TokenizerWrapper(tokenizer.wrapped, kind, eos_token_ids=stops)

"""Models that mlx-lm runs: loaded by its loader, adapted, and admitted after an examination.

The code of a model is mlx-lm's; code that comes with a checkpoint never runs.
"""

import hashlib
import inspect
import io
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxspec.adapted.config import Admission
from mlxspec.adapted.model import AdaptedModel
from mlxspec.device import backend
from mlxspec.errors import Say, UnsupportedModelError
from mlxspec.loading import admissions
from mlxspec.loading.examination import examine
from mlxspec.loading.folder import ALONE, Checkpoint, Sharing, read_config, weight_files
from mlxspec.loading.ports import why_not_ours
from mlxspec.models.weights import kinds_of_weights, packed_words, quantize, stored_type
from mlxspec.text.tokenizer import Tokenizer

_EVERY_S = 2.0  # between two lines about the progress of an examination


def load_module(folder: Path, config: Mapping[str, Any]) -> nn.Module:
    """Return a model as mlx-lm loads it, with lazy weights; `config` replaces entries of its."""
    weight_files(folder)  # names a part that is missing
    module: nn.Module
    with _by_mlx_lm(folder.name, read_config(folder)):
        module, _ = import_module("mlx_lm.utils").load_model(
            folder, lazy=True, model_config=dict(config), trust_remote_code=False
        )
    return module


def build_module(checkpoint: Checkpoint) -> nn.Module:
    """Return mlx-lm's model of a checkpoint in memory."""
    kind, packing = str(checkpoint.config["model_type"]), checkpoint.quantization
    with _by_mlx_lm("the checkpoint", checkpoint.config):
        known = import_module("mlx_lm.utils").MODEL_REMAPPING
        source = import_module(f"mlx_lm.models.{known.get(kind, kind)}")
        module: nn.Module = source.Model(source.ModelArgs.from_dict(checkpoint.config))
        sanitize = getattr(module, "sanitize", lambda tensors: tensors)
        tensors = sanitize(dict(checkpoint.tensors))
        if packing is not None:
            quantize(module, tensors, packing)
        module.load_weights(list(tensors.items()), strict=True)
    return module


@contextmanager
def _by_mlx_lm(name: str, config: Mapping[str, Any]) -> Iterator[None]:
    """Turn what a third-party model file raises, or the end of the process, into an error."""
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            yield
    except (Exception, SystemExit) as error:
        reason, ours = str(error), why_not_ours(config)
        if isinstance(error, SystemExit):
            lines = said.getvalue().strip().splitlines()
            reason = lines[-1] if lines else f"its code ends the process ({error.code})"
        raise UnsupportedModelError(
            f"{name}: {f'{ours}; ' if ours else ''}mlx-lm cannot load it as a model of the type "
            f"{config.get('model_type')!r}: {reason}; it needs a complete checkpoint of a type "
            f"that mlx-lm {version('mlx-lm')} has"
        ) from error


def with_adapter(module: nn.Module, adapter: str | PathLike[str] | None) -> nn.Module:
    """Return a model with the adapters (LoRA) in a folder, if there is one."""
    if adapter is None:
        return module
    try:
        adapted: nn.Module = import_module("mlx_lm.utils").load_adapters(module, str(adapter))
    except Exception as error:  # a third-party file can make mlx-lm raise anything
        stated = Path(adapter) / "adapter_config.json"
        if stated.is_file() and '"peft_type"' in stated.read_text("utf-8", "replace"):
            raise UnsupportedModelError(
                f"mlx-lm cannot load the adapter {fspath(adapter)}, which is one of PEFT: merge it "
                "into its model by merge_and_unload, and load that"
            ) from error
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise UnsupportedModelError(
            f"mlx-lm cannot load the adapter {fspath(adapter)} ({words}); give a folder that "
            "`mlx_lm.lora` wrote for this model: adapters.safetensors and adapter_config.json"
        ) from error
    return adapted


def evaluated(module: nn.Module, dtype: str, sharing: Sharing) -> tuple[nn.Module, str]:
    """Return the model, its weights evaluated in a type, and how it is shared, for display."""
    if dtype == "auto" and not backend.keeps_weights_as_stored():
        # A CPU multiplies plain float32 weights faster than packed ones. The type comes first,
        # because products in the type of the scales would be rounded.
        module.set_dtype(mx.float32)
        module = import_module("mlx_lm.utils").dequantize_model(module)
    elif dtype != "auto":
        module.set_dtype(getattr(mx, dtype))
    module.eval()
    shared = sharing.cut(module)
    mx.eval(module.parameters())
    return module, shared


def admitted(
    module: nn.Module,
    tokenizer: Tokenizer,
    say: Say = lambda line: None,
    place: Path | None = None,
    *,
    sharing: Sharing = ALONE,
    shared: str = "",
) -> AdaptedModel:
    """Return a model of mlx-lm as a target for the drafts it was admitted for, or refuse it."""
    try:
        mx.eval(module.parameters())
    except RuntimeError as error:  # they belong to a stream of another thread
        raise UnsupportedModelError(
            f"the weights of the model cannot be computed here ({error}): in the thread that "
            "loaded it, call mx.eval(model.parameters()), or load it without lazy=True"
        ) from error
    model = AdaptedModel.of(module, tokenizer.eos_token_ids)
    key = _key(module, shared)
    admission = _stored_or_examined(model, key, say, sharing)
    if place is not None and key and not shared:  # notes are about whole models
        admissions.note(place, key)
    if admission.support is None:
        raise UnsupportedModelError(
            f"{model.config.model_type} cannot be a target, since it does not compute the same "
            f"over caches of ours ({admission.reason}): use mlx-lm itself for this model"
        )
    model.draft_support, model.supports_batches = admission.support, admission.batches
    model.draft_limits = admission.reason
    model.refused_caches = dict(admission.refused_caches)
    return model


def _stored_or_examined(
    model: AdaptedModel, key: str | None, say: Say, sharing: Sharing
) -> Admission:
    kind, known = model.config.model_type, admissions.load(key) if key else None
    # The first process decides: another one may never have examined the model.
    found = sharing.agree(None if known is None else asdict(known))
    if found is not None:
        admission = Admission(**found)
        if admission.reason:
            say(f"{kind} was compared before: {admission.words}")
        return admission
    often = "once" if key else "at each load, since its source cannot be read"
    say(f"comparing drafts of {kind} with mlx-lm's plain decoding, {often}")
    model.refused_caches = {}  # an earlier admission must not affect the examination
    said = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal said
        if done < total and time.monotonic() - said >= _EVERY_S:
            say(f"comparing drafts: {done} of {total} texts")
            said = time.monotonic()

    admission = examine(model, report, sharing.agree)
    if key:
        admissions.store(key, admission)
    say(f"compared in {admission.seconds:.1f} s: {admission.words}")
    return admission


def _key(module: nn.Module, shared: str = "") -> str | None:
    """Return what an examination depends on, or None if the model's source cannot be read."""
    if "make_cache" in vars(module):  # a source that was set on the instance
        return None
    try:
        source = inspect.getsource(sys.modules[type(module).__module__])
    except (KeyError, OSError, TypeError):
        return None
    args = repr(getattr(module, "args", None))
    about = f"{source}\n{args}\n{kinds_of_weights(module)}"
    digest = hashlib.sha256(about.encode()).hexdigest()[:16]
    name = type(module).__module__.rsplit(".", 1)[-1]
    parts = f" {shared}" if shared else ""
    return f"{name} {digest}{parts}, {admissions.conditions()}"


def stored_words(module: nn.Module) -> str:
    """Return the type of most weights for display, such as "4-bit" or "bfloat16"."""
    parts = (part for part in module.modules() if isinstance(part, nn.QuantizedLinear))
    words = [packed_words(part.bits, part.mode) for part in parts]
    if words:
        return max(set(words), key=words.count)
    return stored_type(dict(tree_flatten(module.parameters())))

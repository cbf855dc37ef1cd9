"""The settings of a corpus, and `corpus.json`, the file next to its shards that records them."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel
from mlxspec.train.data.dialogue import DialogueSettings

_FILE = "corpus.json"


@dataclass(frozen=True)
class DataSettings(DialogueSettings):
    """Settings of a corpus, those of its conversations included.

    Attributes:
        num_tokens: Minimum number of tokens, prompts included.
        batch_size: Conversations that are written together.
        heldout_share: Share of conversations that training must not see.
        prompts: File of prompts (see `read_prompts`). Half of the conversations start with one of
            them until all are used; None for the model's own prompts alone.
        tries_per_shard: Conversations started for a shard; filters drop some of them.
    """

    num_tokens: int = 1_000_000
    batch_size: int = 32
    heldout_share: float = 0.05
    seed: int = 0
    prompts: Path | None = None
    tries_per_shard: int = 256

    def __post_init__(self) -> None:
        for name in ("greedy_share", "second_turn_share", "heldout_share"):
            share = getattr(self, name)
            _check(name, share, "between 0 and 1", 0 <= share <= 1)
        for name in ("num_tokens", "batch_size", "tries_per_shard", "max_answer_tokens"):
            _check(name, getattr(self, name), "1 or more", getattr(self, name) >= 1)
        turn = self.max_prompt_tokens
        _check("max_prompt_tokens", turn, "2 or more, for a word and its end", turn >= 2)
        _check("seed", self.seed, "0 or more", self.seed >= 0)
        heats = self.temperatures
        are_right = all(0 < t < math.inf for t in heats) and len(heats) <= 250
        _check("temperatures", heats, "at most 250 numbers above 0", are_right)
        is_enough = bool(heats) or self.greedy_share == 1
        _check("temperatures", heats, "empty only where greedy_share is 1", is_enough)


def claim_folder(folder: Path, loaded: LoadedModel, settings: DataSettings) -> None:
    """Make a folder with the file of settings, or check that an existing one has the same settings.

    Only the number of tokens may differ. Raises `MlxspecError` if another setting does, or if the
    file cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, wanted = folder / _FILE, _description(loaded, settings)
    if not path.exists():
        partial = path.with_suffix(".partial")  # an interruption leaves no half-written settings
        partial.write_text(json.dumps(wanted, indent=1) + "\n")
        partial.replace(path)
        return
    try:
        held = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise MlxspecError(f"{path} cannot be read ({error}): use another folder") from error
    for name, value in wanted.items():
        if held.get(name) != value:
            raise MlxspecError(
                f"{folder} holds a corpus whose {name} is {held.get(name)}, not {value}: use the "
                "same settings to continue it, or another folder"
            )


def _description(loaded: LoadedModel, settings: DataSettings) -> dict[str, Any]:
    """Return everything that determines the content of a shard, in types of JSON."""
    own = asdict(settings)
    del own["num_tokens"]  # more tokens only add shards
    own["temperatures"] = list(settings.temperatures)
    own["prompts"] = _digest(settings.prompts)  # its content counts, not its path
    return {
        "target": loaded.name,
        "weights": loaded.weights,
        "revision": loaded.revision,
        "tokenizer": loaded.tokenizer.fingerprint,
        **own,
    }


def _digest(path: Path | None) -> str | None:
    """Return the SHA-256 of a file; raises `MlxspecError` if it cannot be read."""
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise MlxspecError(f"the prompt file {path} cannot be read ({error})") from error


def _check(name: str, value: object, allowed: str, is_allowed: bool) -> None:
    if not is_allowed:
        raise ValueError(f"{name} must be {allowed}; got {value}")

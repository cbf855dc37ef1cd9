"""How a corpus is made, and the file beside its shards that says so."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel
from mlxspec.train.dialogue import DialogueSettings

_FILE = "corpus.json"


@dataclass(frozen=True)
class DataSettings(DialogueSettings):
    """How a corpus is made: how conversations are held, and these.

    Attributes:
        num_tokens: Tokens to make at least, prompts included.
        batch_size: Conversations written at a time.
        heldout_share: Share that training must not see.
        seed: Seed of everything that is drawn.
        prompts: File of prompts (see `read_prompts`), with which half of the conversations begin
            as long as it lasts; None for the model's own alone.
        tries_per_shard: Conversations begun for a shard; some are not worth keeping.
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
    """Make a folder for a corpus, or check that the one there was made in the same way.

    Only the number of tokens may differ. Whoever claims a new folder leaves a file in it.

    Raises:
        MlxspecError: It holds a corpus made in another way, or a file that says nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, wanted = folder / _FILE, _description(loaded, settings)
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(wanted, indent=1) + "\n")
        partial.replace(path)
        return
    try:
        held = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise MlxspecError(f"{path} cannot be read ({error}): use another folder") from error
    for name, value in wanted.items():
        if held.get(name) != value:
            raise MlxspecError(
                f"{folder} holds a corpus whose {name} is {held.get(name)}, not {value}: use the "
                "same settings to go on with it, or another folder"
            )


def _description(loaded: LoadedModel, settings: DataSettings) -> dict[str, Any]:
    """Return all that decides what a shard holds, as JSON has it."""
    own = asdict(settings)
    del own["num_tokens"]
    own["temperatures"] = list(settings.temperatures)
    own["prompts"] = _digest(settings.prompts)
    return {
        "target": loaded.name,
        "weights": loaded.weights,
        "revision": loaded.revision,
        "tokenizer": loaded.tokenizer.fingerprint,
        **own,
    }


def _digest(path: Path | None) -> str | None:
    """Return the SHA-256 of a file, or None for none.

    Raises:
        MlxspecError: It cannot be read.
    """
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise MlxspecError(f"the prompt file {path} cannot be read ({error})") from error


def _check(name: str, value: object, allowed: str, is_allowed: bool) -> None:
    if not is_allowed:
        raise ValueError(f"{name} must be {allowed}; got {value}")

"""The names of drafters, and which texts can be such a name: known without MLX, before a load."""

from os.path import expanduser
from pathlib import Path

HOST = ("none", "suffix", "table", "pool")
"""Words for drafters that need only the text."""

TRAINED = {"model": "draft-model", "medusa": "medusa", "eagle3": "eagle3", "exit": "exit"}
"""Words for trained drafters, and the kind of file that each names."""

WORDS = (*HOST, *TRAINED, "auto")

MEANINGS = {  # in the order of a list to choose from
    "auto": "measures what is fastest here",
    "pool": "copies of earlier text, and a table of short contexts",
    "suffix": "copies of earlier text",
    "table": "a table of short contexts",
    "none": "no drafts: plain decoding",
    "model": "a small language model trained for this one",
    "medusa": "heads that guess several tokens ahead",
    "eagle3": "a head that reads the target's layers",
    "exit": "the target's own lower layers",
}

_ALONE = ("none", "pool", "auto")  # never part of a list


def parts_of(drafter: str) -> list[str]:
    """Return the names in a list of drafters; an existing path with commas is one name."""
    if Path(expanduser(drafter)).exists():
        return [drafter]
    return [part.strip() for part in drafter.split(",")]


def check_drafter(drafter: str, *, has_draft_model: bool) -> None:
    """Raise ValueError for a name that cannot be a drafter, before anything is loaded."""
    parts = parts_of(drafter)
    for part in parts:
        # a single slash means a hub id, owner/name: only the download shows if it exists
        is_place = Path(expanduser(part)).exists() or part.count("/") == 1
        if part not in WORDS and not (part and is_place):
            raise ValueError(
                f"drafter {part!r} is not known; choose from {', '.join(WORDS)}, or give a file, a "
                "folder or a hub id, or several separated by commas"
            )
        if len(parts) > 1 and part in _ALONE:
            raise ValueError(f"the drafter {part!r} stands alone: take it out of {drafter!r}")
    if has_draft_model and "model" not in parts:
        raise ValueError(f"the drafter {drafter!r} uses no draft model; choose 'model', or drop it")

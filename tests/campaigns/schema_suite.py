"""The public test suite of JSON Schema: what a schema forbids can never be written.

    python -m tests.campaigns.schema_suite FOLDER

FOLDER is `tests/draft2020-12` of json-schema-org/JSON-Schema-Test-Suite; the source archive of the
package `jsonschema` has it, too, below `json/`. Each schema is served or refused by name. Of one
that is served, every invalid value must be forbidden, whatever the order of its properties. A valid
value may be forbidden (one spelling of a number is enough, and a text has to have its format), so
these are counted only. Ends with 1 if an invalid value can be written.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations
from pathlib import Path
from typing import Any

from mlxspec.grammar.compiled import Grammars
from mlxspec.loading.fetch.sources import find_source
from mlxspec.loading.profile import read_profile, tokenizer_of
from mlxspec.params.grammar import Grammar

_MOST_ORDERS = 24


def main(argv: Sequence[str] | None = None) -> int:
    """Judge all groups of the suite, and print what can be written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(argv)
    path = find_source(None).path
    grammars = Grammars(tokenizer_of(path, read_profile(path).config))
    counts: Counter[str] = Counter()
    faults: list[str] = []
    for path in sorted(args.folder.glob("*.json")):
        for group in json.loads(path.read_text()):
            judge(grammars, path.stem, group, counts, faults)
    print("\n".join(faults))
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if faults else 0


def judge(
    grammars: Grammars,
    name: str,
    group: Mapping[str, Any],
    counts: Counter[str],
    faults: list[str],
) -> None:
    """Compile the schema of a group, and try to write its values."""
    try:
        matcher = grammars.matcher(Grammar("json-schema", json.dumps(group["schema"])))
    except ValueError:
        counts["schemas refused"] += 1
        return
    counts["schemas served"] += 1
    for test in group["tests"]:
        can_be_written = any(writes(grammars, matcher, text) for text in spellings(test["data"]))
        kind = "valid" if test["valid"] else "invalid"
        counts[f"{kind} values {'written' if can_be_written else 'forbidden'}"] += 1
        if can_be_written and not test["valid"]:
            faults.append(
                f"{name}: {group['description']}: {test['description']}: {test['data']!r}"
            )


def writes(grammars: Grammars, matcher: Any, text: str) -> bool:
    """Return whether a text can be the whole reply."""
    tokens = grammars.tokenizer.encode(text, add_special_tokens=False)
    fresh = matcher.deep_copy()
    return bool(fresh.try_consume_tokens(tokens) == len(tokens) and fresh.is_accepting())


def spellings(value: object) -> Iterator[str]:
    """Yield a value as JSON, an object in several orders of its properties."""
    if not isinstance(value, dict):
        yield json.dumps(value, ensure_ascii=False)
        return
    for items in islice(permutations(value.items()), _MOST_ORDERS):
        yield json.dumps(dict(items), ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())

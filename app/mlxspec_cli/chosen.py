"""What the command line leaves open, filled in from the settings of the app.

`chat` alone reads them: a script that calls `generate` gets the same everywhere.
"""

from argparse import Namespace
from dataclasses import asdict
from os.path import expanduser

from mlxspec_app.settings.file import Settings

_ARGUMENTS = {"temperature": "temp"}  # of the settings whose argument has another name


def filled_in(args: Namespace, settings: Settings) -> Namespace:
    """Return the arguments; those that were not given are as the settings say."""
    sampling = asdict(settings.sampling).items()
    chosen: dict[str, object] = {_ARGUMENTS.get(name, name): value for name, value in sampling}
    chosen["model"] = expanduser(settings.model)
    chosen["learn"] = settings.learn
    if args.draft_model is None:  # a draft model that is given is meant to draft
        chosen["drafter"] = expanduser(settings.drafter)
    open_ones = {name: value for name, value in chosen.items() if getattr(args, name) is None}
    return Namespace(**{**vars(args), **open_ones})

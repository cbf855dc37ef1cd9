"""`mlxspec models`: what can be run without a download; `--fetch` gets the default model."""

from argparse import Namespace

from mlxspec.loading import fetch_default_model, list_local_models


def run(args: Namespace) -> int:
    """List local models, or fetch the default one.

    Raises:
        ModelNotFoundError: The default model is not here and cannot be fetched.
    """
    if args.fetch:
        print(fetch_default_model())
        return 0
    models = list_local_models()
    if "default" not in [model.source for model in models]:
        print("default  is not here yet: mlxspec models --fetch gets it (98 MB)")
    for model in models:
        state = f"cannot run: {model.problem}" if model.problem else "ready"
        print(f"{model.source}  {model.size_gb:.2f} GB  {state}")
    return 0

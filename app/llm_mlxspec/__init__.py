"""A plugin for the command `llm`: its models answer in this process, with drafts in every reply."""

from collections.abc import Callable

import click
import llm

from llm_mlxspec.sources import add_source, read_sources


@llm.hookimpl
def register_models(register: Callable[[llm.Model], None]) -> None:
    """Register the default model, and those that were added."""
    from llm_mlxspec.model import MlxspecModel  # now: it needs the settings of mlxspec

    for name, source in read_sources(llm.user_dir()).items():
        register(MlxspecModel(name, source))


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """Register `llm mlxspec`."""

    @cli.group()
    def mlxspec() -> None:
        """Models of mlxspec."""

    @mlxspec.command()
    @click.argument("source")
    def add(source: str) -> None:
        """Add a model: a folder, a GGUF file or a hub id. It is loaded when it is first asked."""
        try:
            name = add_source(llm.user_dir(), source)
        except (ValueError, OSError) as error:
            raise click.ClickException(str(error)) from error
        click.echo(f"llm -m {name} 'a question'")

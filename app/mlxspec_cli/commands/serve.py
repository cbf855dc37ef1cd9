"""`mlxspec serve`: answer over HTTP, with drafts in every reply."""

from argparse import Namespace
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mlxspec import api
from mlxspec.drafting.catalogue import list_models
from mlxspec.errors import UnsupportedOperationError
from mlxspec.loading.exactness import exact_form
from mlxspec_cli.arguments import generation_params, options, words_of
from mlxspec_cli.output import say
from mlxspec_cli.serve_options import REFUSED

if TYPE_CHECKING:
    from mlxspec.engine.engine import Engine
    from mlxspec_server.settings import ServerSettings
    from mlxspec_server.shelf import Offer

_NEEDED = ("starlette", "uvicorn")
_TURNS = "replies written at the same time take turns, a forward each"


def run(args: Namespace) -> int:
    """Serve until Ctrl+C."""
    for name, why in REFUSED.items():
        if getattr(args, name):
            raise ValueError(f"--{name.replace('_', '-')} is refused: {why}; leave it out")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UnsupportedOperationError(
            f"mlxspec serve needs {' and '.join(missing)}: pip install 'mlxspec[serve]'"
        )
    if len(args.words) > 1 or (args.words and args.model):
        raise ValueError("give one model: mlxspec serve MODEL, or --model MODEL")
    _serve(args)
    return 0


def _serve(args: Namespace) -> None:
    from mlxspec_server.run import listen, serve  # an extra that may be missing
    from mlxspec_server.shelf import Offer, Shelf

    settings = _settings_of(args)
    source = next(iter(args.words), args.model) or None
    loads = options(args)

    def load(offer: "Offer") -> "Engine":
        engine = api.prepare(offer.source, loads, say=say).engine
        if args.exact:  # now, so that no request waits for it
            exact_form(engine.target, say)
        return engine

    def offers() -> list["Offer"]:
        entries = [entry for entry in list_models() if entry.is_here and not entry.problem]
        return [Offer(one.name, one.source, one.size_gb, (one.source,)) for one in entries]

    known = {offer.source: offer for offer in offers()}
    main = known.get(source or "default", Offer(str(source or "default"), source))
    # Other ranks hold one model at a time, and may lack the files of others.
    others = offers if args.hosts is None else list
    shelf = Shelf(main, load, others, settings.batch_size, settings.prefix_bytes)
    with listen(settings) as listening:  # before the load, so that a wrong port fails at once
        shelf.load(main)
        port = listening.getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        page = f"http://{host}:{port}"
        ready = f"{page}/v1 answers with {main.name}; {page} shows its replies; Ctrl+C ends it"
        if args.hosts is not None:
            say(f"{shelf.loaded[0].engine.weights}: {_TURNS}")
        serve(shelf, settings, listening, args.log_level, lambda: say(ready))


def _settings_of(args: Namespace) -> "ServerSettings":
    from mlxspec_server.settings import ServerSettings

    template, step = args.chat_template_args, args.prefill_step_size
    params = generation_params(args)
    return ServerSettings(
        host=args.host,
        port=args.listen_port,
        api_key=args.api_key,
        is_insecure=args.insecure,
        hosts=tuple(words_of(args.allowed_hosts)),
        origins=tuple(words_of(args.allowed_origins)),
        max_body_bytes=args.max_body_bytes,
        max_waiting=args.max_waiting,
        batch_size=args.decode_concurrency,
        prefix_bytes=0 if args.prompt_cache_size == 0 else args.prompt_cache_bytes,
        params=replace(params, chat_template_args=template, prefill_step_size=step),
    )

"""`mlxspec chat`: the terminal app, or with `--plain` a chat of plain lines.

The app draws before MLX is imported: its engine thread imports MLX and loads the model.
"""

import gc
from argparse import Namespace
from os.path import expanduser

from mlxspec.device import backend
from mlxspec.params import DEFAULT_MODEL, GenerationParams
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_app.sessions.engine_session import EngineSession
from mlxspec_app.settings.file import Settings
from mlxspec_app.user_data import find_user_data
from mlxspec_cli.arguments import generation_params, given_words, is_given, options
from mlxspec_cli.chat_models import ChatCatalogue, SessionModels
from mlxspec_cli.output import can_draw, say


def run(args: Namespace) -> int:
    """Open the app, or the plain chat with `--plain` or without a terminal."""
    if args.plain or not can_draw():
        if args.goes_on:
            raise ValueError("--continue needs the app: bare lines keep no chats, so leave it out")
        return _run_plain(args)
    backend.check_early()
    from mlxspec_app.run import run_chat

    user_data = find_user_data(args.data_dir)
    chosen = filled_in(args, user_data.settings)
    user_data.catalogue = ChatCatalogue(options(chosen))
    params = generation_params(chosen)
    return run_chat(
        lambda: _session(chosen, params),
        user_data=user_data,
        inline=args.inline,
        continues=args.goes_on,
        introduces=True,
    )


def filled_in(args: Namespace, settings: Settings) -> Namespace:
    """Return the arguments, with missing ones from the settings file.

    Only `chat` uses the file, so that a script with `generate` does the same everywhere.
    """
    chosen: dict[str, object] = {n: v for n, v in settings.sampling.items() if v != ""}
    chosen |= {"model": expanduser(settings.model), "learn": settings.learn}
    if args.draft_model is None:  # --draft-model also chooses the drafter
        chosen["drafter"] = expanduser(settings.drafter)
    open_ones = {name: value for name, value in chosen.items() if not is_given(args, name)}
    filled = {**vars(args), **open_ones}
    return Namespace(**{**filled, "prefixes": filled["learn"]})


def _run_plain(args: Namespace) -> int:
    gc.enable()
    user_data = find_user_data(args.data_dir)
    for notice in user_data.notices:
        say(notice)
    chosen = filled_in(args, user_data.settings)
    params = generation_params(chosen)
    backend.check()
    from mlxspec_cli.plain_chat import run_plain

    return run_plain(chosen, params)


def _session(args: Namespace, params: GenerationParams) -> EngineSession:
    first = ModelChoice(args.model or "", options(args).asked, args.max_kv_size)
    models = SessionModels(args, first)
    session = EngineSession(
        models,
        params,
        args.trace,
        choice=first,
        default_name=DEFAULT_MODEL,
        system=args.system,
        given=given_words(args),
    )
    models.say, models.suggest = session.say, session.settings.suggest
    models.sampling = lambda: session.settings.params.sampling
    return session

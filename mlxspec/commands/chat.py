"""`mlxspec chat`: the terminal app, or with `--plain` a chat of bare lines.

The app is painted before MLX is imported: its engine thread does that, and loads the model.
"""

import sys
from argparse import Namespace
from dataclasses import asdict

from mlxspec import backend
from mlxspec.commands.adjusting import adjusted
from mlxspec.commands.chat_catalogue import ChatCatalogue
from mlxspec.commands.options import generation_params, options
from mlxspec.errors import MlxspecError
from mlxspec.options import DEFAULT_MODEL
from mlxspec.params import GenerationParams
from mlxspec_app.bridge import EngineSession
from mlxspec_app.interpreter import ConversationLike
from mlxspec_app.session import ModelChoice, ProgressCallback


def run(args: Namespace) -> int:
    """Open the app, or chat in lines where `--plain` asks for it or there is no terminal.

    Raises:
        ValueError: A setting is out of range, or bare lines are to go on with a chat.
        MlxspecError: MLX is not here, so no model can run.
    """
    params = generation_params(args)
    if args.plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        if args.goes_on:
            raise ValueError("--continue needs the app: bare lines keep no chats, so leave it out")
        backend.check()
        from mlxspec.commands.plain_chat import run_plain

        return run_plain(args, params)
    backend.check_early()
    from mlxspec_app.app import run_chat
    from mlxspec_app.desk import find_desk

    desk = find_desk(args.data_dir)
    desk.catalogue = ChatCatalogue()
    return run_chat(
        lambda: _session(args, params), desk=desk, inline=args.inline, continues=args.goes_on
    )


def _session(args: Namespace, params: GenerationParams) -> EngineSession:
    def open_conversation(choice: ModelChoice, on_progress: ProgressCallback) -> ConversationLike:
        backend.check()
        from mlxspec.commands.opening import open_engine
        from mlxspec.conversation import Conversation

        try:
            chosen = _chosen(args, choice, is_first=choice == first)
            prepared = open_engine(chosen, on_progress, session.tell)
        except ValueError as error:  # a drafter that does not exist, for example
            raise MlxspecError(str(error)) from error
        session.tell(f"drafter {prepared.choice.drafter}, {prepared.choice.reason}")
        return Conversation(prepared.engine)

    first = ModelChoice(args.model or "", options(args).asked, args.max_kv_size)
    session = EngineSession(
        open_conversation,
        params,
        args.trace,
        choice=first,
        default_name=DEFAULT_MODEL,
        system=args.system,
        adjust=adjusted,
    )
    return session


def _chosen(args: Namespace, choice: ModelChoice, *, is_first: bool) -> Namespace:
    """Return the arguments with other models; `--draft-model` was meant for the first ones."""
    draft_model = args.draft_model if is_first else None
    return Namespace(**{**vars(args), **asdict(choice), "draft_model": draft_model})

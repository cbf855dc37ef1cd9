"""`mlxspec chat`: the terminal app, or with `--plain` a chat of bare lines.

The app is painted before MLX is imported: its engine thread does that, and loads the model.
"""

import sys
from argparse import Namespace
from dataclasses import asdict
from functools import partial

from mlxspec import backend
from mlxspec.commands.adjusting import adjustable, adjusted
from mlxspec.commands.chosen import filled_in
from mlxspec.commands.options import generation_params, options
from mlxspec.options import DEFAULT_MODEL
from mlxspec.params import GenerationParams
from mlxspec_app.bridge import EngineSession
from mlxspec_app.desk import find_desk
from mlxspec_app.interpreter import ConversationLike
from mlxspec_app.introduction import Introduction
from mlxspec_app.session import ModelChoice, ProgressCallback


def run(args: Namespace) -> int:
    """Open the app, or chat in lines where `--plain` asks for it or there is no terminal.

    Raises:
        ValueError: A setting is out of range.
        MlxspecError: MLX is not here, so no model can run.
    """
    if args.plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _run_plain(args)
    backend.check_early()
    from mlxspec_app.app import open_desk, run_chat

    desk = open_desk(args.data_dir)
    chosen = filled_in(args, desk.settings)
    params = generation_params(chosen)
    return run_chat(
        lambda: _session(chosen, params),
        desk=desk,
        inline=args.inline,
        introduce=partial(_introduce, chosen.model),
    )


def _run_plain(args: Namespace) -> int:
    desk = find_desk(args.data_dir)
    for notice in desk.notices:
        print(f"mlxspec: {notice}", file=sys.stderr)
    chosen = filled_in(args, desk.settings)
    params = generation_params(chosen)
    backend.check()
    from mlxspec.commands.plain_chat import run_plain

    return run_plain(chosen, params)


def _introduce(model: str) -> Introduction:
    from mlxspec.commands.introducing import introduce  # which imports MLX

    return introduce(model)


def _session(args: Namespace, params: GenerationParams) -> EngineSession:
    def open_conversation(choice: ModelChoice, on_progress: ProgressCallback) -> ConversationLike:
        backend.check()
        from mlxspec.commands.opening import open_engine
        from mlxspec.conversation import Conversation

        chosen = {**vars(args), **asdict(choice)}
        prepared = open_engine(Namespace(**chosen), on_progress, session.tell)
        session.tell(f"drafter {prepared.choice.drafter}, {prepared.choice.reason}")
        return Conversation(prepared.engine)

    session = EngineSession(
        open_conversation,
        params,
        args.trace,
        choice=ModelChoice(args.model or "", options(args).asked, args.max_kv_size),
        default_name=DEFAULT_MODEL,
        system=args.system,
        adjust=adjusted,
        describe=adjustable,
    )
    return session

"""The chat over a slow recording, as a program: `slow_chat.py FOLDER SPEED [inline]`."""

import sys

from mlxspec_app.run import run_chat
from mlxspec_app.user_data import find_user_data
from tests.support.answering_replay import AnsweringReplay
from tests.traces import make_fake

folder, speed = sys.argv[1], float(sys.argv[2])
sys.exit(
    run_chat(
        lambda: AnsweringReplay(make_fake.chat(), speed=speed),
        user_data=find_user_data(folder),
        inline="inline" in sys.argv,
    )
)

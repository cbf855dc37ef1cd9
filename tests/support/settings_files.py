"""A settings file with every setting, and the expected values."""

from mlxspec_app.settings.file import Settings

FULL = """\
# my settings
theme = "day"  # bright room
ink = "off"
view = "calm"
frame_rate = 20
reduced_motion = true
ascii_glyphs = true
context_full = "drop"
model = "~/models/smol"
drafter = "suffix"
learn = false

[sampling]
temperature = 1
top_k = 40
top_p = 0.9
min_p = 0.05
repetition_penalty = 1.1
presence_penalty = -0.5
frequency_penalty = 0.25
max_tokens = 64
think_tokens = 500
stop_repeats = false
exact = true
chat_template_args = "enable_thinking=false"

[keys]
"chat.stop" = "ctrl+g"
chat.new = "f9,ctrl+b"  # either
"""
EVERYTHING = Settings(
    "day",
    "off",
    "calm",
    20,
    True,
    True,
    "drop",
    "~/models/smol",
    "suffix",
    False,
    {
        "temperature": 1.0,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.25,
        "max_tokens": 64,
        "think_tokens": 500,
        "stop_repeats": False,
        "exact": True,
        "chat_template_args": "enable_thinking=false",
    },
    {"chat.stop": "ctrl+g", "chat.new": "f9,ctrl+b"},
)


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")

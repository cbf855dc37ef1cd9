"""Hostile tokenizers for `fuzz.py`: damaged files, and chat templates that mean harm.

Left out are templates that take what they like in one expression, such as `2 ** 2 ** 70`: there is
no line between which they could be stopped.
"""

import json
import shutil
from pathlib import Path
from random import Random

from mlxspec.errors import MlxspecError
from mlxspec.loading.profile import tokenizer_of
from mlxspec.models import ModelConfig
from mlxspec.text import chat_template
from tests.campaigns.fuzz_damage import damaged_json, hostile_value
from tests.support.model_folders import save_folder, tiny_config

chat_template.TIME_S = 0.5  # of the many that run on


class TokenizerTarget:
    """Folders whose tokenizer files are damaged; templates that mean harm among them."""

    refusals = (MlxspecError,)

    def __init__(self, folder: Path) -> None:
        self._sound = save_folder(folder / "sound")
        self._config = ModelConfig.from_dict(tiny_config())

    def make(self, draw: Random, folder: Path) -> str:
        place = folder / "model"
        shutil.copytree(self._sound, place, ignore=shutil.ignore_patterns("*.safetensors"))
        path = place / draw.choice(["tokenizer.json", "tokenizer.json", "tokenizer_config.json"])
        if draw.random() < 0.25:
            content = {"eos_token": "<|end|>", _setting(draw): hostile_value(draw)}
            path, what = place / "tokenizer_config.json", str(content)[:60]
            path.write_text(json.dumps(content))
        elif draw.random() < 0.3:
            what = draw.choice(TEMPLATES)
            (place / "chat_template.jinja").write_text(what)
        else:
            what, data = damaged_json(path.read_bytes(), draw)
            path.write_bytes(data)
        return f"{path.name}: {what}"

    def read(self, folder: Path) -> None:
        tokenizer = tokenizer_of(folder / "model", self._config)
        tokens = tokenizer.encode("abq a\n")
        tokenizer.decode([*tokens, *range(tokenizer.vocab_size + 2)], keep_special=True)
        tokenizer.decode(tokens)
        assert tokenizer.same_as(tokenizer)
        assert tokenizer.fingerprint
        if tokenizer.has_chat_template:
            tokenizer.apply_chat_template([{"role": "user", "content": "ab"}])


TEMPLATES = (
    "{% for message in messages %}{{ message['content'] }}<|end|>{% endfor %}",
    "",
    "{{ messages.nothing.at.all }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.append(1) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ raise_exception('no') }}",
    "{{ 1 // 0 }}",
    "{{ [] | first | length }}",
    "{% if %}",
    "{{ 'x' * (10 ** 12) }}",
    "{{ range(10 ** 15) | list }}",
    "{{ '%*d' | format(10 ** 12, 1) }}",
    "{{ ('{:' ~ 10 ** 12 ~ '}').format(1) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "\ufeff{{ messages }}",
    "{{ messages | tojson(indent=10 ** 11) }}",
    "{{ 'a' | center(10 ** 12) }}",
    "{{ messages | map(attribute='__class__') | list }}",
)
_SETTINGS = (
    "chat_template",
    "eos_token",
    "bos_token",
    "additional_special_tokens",
    "model_max_length",
)
_MORE = ("tokenizer_class", "added_tokens_decoder", "auto_map", "extra_special_tokens", "pad_token")


def _setting(draw: Random) -> str:
    return draw.choice([*_SETTINGS, *_MORE, "clean_up_tokenization_spaces", "padding_side"])

"""Arguments of a chat template: a mapping in Python, NAME=VALUE or a JSON object as text."""

import json
from collections.abc import Mapping
from typing import Any

from mlxspec.params.checks import is_list, wrong_type

ALLOWED = "names with JSON values"
_SWITCHES = {"true": True, "false": False}


def template_args(name: str, value: object) -> dict[str, Any]:
    """Return the arguments of a chat template by name, as a copy.

    The value is a mapping, or a text or several: NAME=VALUE, or a JSON object. A VALUE that is no
    JSON is a text.
    """
    if isinstance(value, str):
        value = _parsed(name, value)
    elif is_list(value) and all(isinstance(text, str) for text in value):
        value = {key: one for text in value for key, one in _parsed(name, text).items()}
    if not isinstance(value, Mapping):
        raise wrong_type(name, f"{ALLOWED}, in a mapping or as texts NAME=VALUE", value)
    for key in value:
        if not isinstance(key, str) or not key.isidentifier():
            raise ValueError(f"{name} must be {ALLOWED}; got the name {key!r:.60}")
    try:
        copy: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{name} must be {ALLOWED} (true, false, numbers, texts, lists, objects); got "
            f"{value!r:.60}: {error}"
        ) from None
    return copy


def written(args: Mapping[str, Any]) -> str:
    """Return the arguments as text that `template_args` accepts."""
    return json.dumps(dict(args), ensure_ascii=False)


def _parsed(name: str, text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} is not a JSON object: {text:.60}: {error}") from None
        return dict(found)
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{name} must be NAME=VALUE; got {text!r:.60}")
    return {key.strip(): _value(value.strip())}


def _value(text: str) -> Any:
    # "False" as a text would be true in a template, so Python's spelling is a switch too.
    if text.lower() in _SWITCHES:
        return _SWITCHES[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

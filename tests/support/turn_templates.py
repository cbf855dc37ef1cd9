"""Chat templates that are strict about turns, small, each with one rule of models in use."""

_START = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
_CALL = (
    "{% for c in m.tool_calls or [] %}{{ '<call ' + c.function.name }}"
    "{% for k, v in c.function.arguments | items %}{{ ' ' + k + '=' + (v | string) }}{% endfor %}"
    "{{ '>' }}{% endfor %}"
)
_TEXT = "{{ '<|im_start|>' + m.role + '\n' + m.content }}"
_TURN = _TEXT + _CALL + "{{ '<|im_end|>\n' }}"
ONE_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    + _TURN
    + "{% endfor %}"
    + _START
    + "{% if tools %}{% endif %}"
)
"""One system prompt, at the start; arguments are written as pairs."""

ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content | trim + '<|im_end|>\n' }}{% endfor %}" + _START
)
"""User and assistant in turn, no other role; texts are trimmed."""

ONE_CALL = (
    "{% for m in messages %}{% if 'tool_calls' in m %}{% if m.tool_calls | length != 1 %}"
    "{{ raise_exception('single tool-calls at once') }}{% endif %}" + _CALL + "{% else %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    + _START
)
"""A message has one call, or no such field."""

NINE_LETTERS = (
    "{% macro check(id) %}{% if id is not string or id | length != 9 %}"
    "{{ raise_exception('ids have nine letters') }}{% endif %}{{ '[' + id + ']' }}{% endmacro %}"
    "{% for m in messages %}{{ m.role + ':' + m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name + check(c.id) }}{% endfor %}"
    "{% if m.role == 'tool' %}{{ check(m.tool_call_id) }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if tools %}{% endif %}"
)
"""Ids of calls have nine letters, as Mistral's."""

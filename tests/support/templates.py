"""Small chat templates: strict about turns, or with calls of tools in each of the forms in use."""

# ---- turns, each with one rule of models in use ---------------------------------------------

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

# ---- calls of tools --------------------------------------------------------------------------

_CALLS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{% for c in m.tool_calls or [] %}{% set tool_call = c.function %}"
)
_CALLS_END = (
    "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}{# tools #}"
    "{% if tools %}{% endif %}"
)
JSON_TOOLS = (
    _CALLS
    + "{% if not loop.first or m.content %}{{ '\n' }}{% endif %}"
    + """{{ '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' """
    + "+ (tool_call.arguments | tojson) + '}\n</tool_call>' }}"
    + _CALLS_END
)
QWEN3_CODER = (
    _CALLS
    + "{{ '<tool_call>\n<function=' + tool_call.name + '>\n' }}"
    + "{% for k, v in tool_call.arguments | items %}{{ '<parameter=' + k + '>\n' "
    + "+ (v if v is string else v | tojson) + '\n</parameter>\n' }}{% endfor %}"
    + "{{ '</function>\n</tool_call>' }}"
    + _CALLS_END
)
GLM = (
    _CALLS
    + "{{ '\n<tool_call>' + tool_call.name }}{% for k, v in tool_call.arguments | items %}"
    + "{{ '<arg_key>' + k + '</arg_key><arg_value>' + (v if v is string else v | tojson) "
    + "+ '</arg_value>' }}{% endfor %}{{ '</tool_call>' }}"
    + _CALLS_END
)
MISTRAL = (
    _CALLS
    + "{{ '[TOOL_CALLS]' + tool_call.name + '[ARGS]' + (tool_call.arguments | tojson) }}"
    + _CALLS_END
)
PYTHONIC = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{% if m.tool_calls %}{{ '<|tool_call_start|>[' }}{% for c in m.tool_calls %}"
    "{{ c.function.name + '(' }}{% for k, v in c.function.arguments | items %}"
    "{{ k + '=' + (v | tojson) }}{{ ', ' if not loop.last }}{% endfor %}{{ ')' }}"
    "{{ ', ' if not loop.last }}{% endfor %}{{ ']<|tool_call_end|>' }}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if tools %}{% endif %}"
)
TEMPLATES = {
    "json_tools": JSON_TOOLS,
    "qwen3_coder": QWEN3_CODER,
    "glm47": GLM,
    "mistral": MISTRAL,
    "pythonic": PYTHONIC,
}

"""Chat templates that write calls of tools, small, in each of the forms in use."""

_TURN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{% for c in m.tool_calls or [] %}{% set tool_call = c.function %}"
)
_END = (
    "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}{# tools #}"
    "{% if tools %}{% endif %}"
)
JSON_TOOLS = (
    _TURN
    + "{% if not loop.first or m.content %}{{ '\n' }}{% endif %}"
    + """{{ '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' """
    + "+ (tool_call.arguments | tojson) + '}\n</tool_call>' }}"
    + _END
)
QWEN3_CODER = (
    _TURN
    + "{{ '<tool_call>\n<function=' + tool_call.name + '>\n' }}"
    + "{% for k, v in tool_call.arguments | items %}{{ '<parameter=' + k + '>\n' "
    + "+ (v if v is string else v | tojson) + '\n</parameter>\n' }}{% endfor %}"
    + "{{ '</function>\n</tool_call>' }}"
    + _END
)
GLM = (
    _TURN
    + "{{ '\n<tool_call>' + tool_call.name }}{% for k, v in tool_call.arguments | items %}"
    + "{{ '<arg_key>' + k + '</arg_key><arg_value>' + (v if v is string else v | tojson) "
    + "+ '</arg_value>' }}{% endfor %}{{ '</tool_call>' }}"
    + _END
)
MISTRAL = (
    _TURN
    + "{{ '[TOOL_CALLS]' + tool_call.name + '[ARGS]' + (tool_call.arguments | tojson) }}"
    + _END
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

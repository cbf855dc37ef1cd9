"""Chat templates: what they are given, against the rendering of transformers."""

import pytest

from mlxspec.errors import UnsupportedOperationError
from tests.support.toy_chat import CHATML, LLAMA3, byte_tokenizer

THINKING = (
    "{%- if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif -%}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.reasoning_content is defined %}({{ m.reasoning_content }}){% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is false %}<think></think>{% endif %}"
    "{{ effort | default('') }}{% endif %}"
)
TOOLS = (
    "{{ bos_token }}{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}{% generation %}<{{ m['role'] }}>{{ m['content'] }}{% endgeneration %}"
    "{% for call in m.tool_calls or [] %}"
    "[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %}{% endfor %}"
)
USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "time", "arguments": {"zone": "UTC"}}}


@pytest.mark.parametrize(
    "args", [{}, {"enable_thinking": False}, {"enable_thinking": True, "effort": "low"}]
)
def test_arguments_reach_the_template(args):
    tokenizer = byte_tokenizer(THINKING)
    expected = tokenizer.wrapped.apply_chat_template(
        [USER], tokenize=False, add_generation_prompt=True, **args
    )
    assert tokenizer.render_chat([USER], chat_template_args=args) == expected
    assert ("<think>" in expected) == (args.get("enable_thinking") is False)


def test_tools_calls_and_results_reach_the_template():
    tokenizer = byte_tokenizer(TOOLS)
    messages = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "time", "content": "12:00"},
    ]
    expected = tokenizer.wrapped.apply_chat_template(
        messages, tools=[SCHEMA], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.render_chat(messages, tools=[SCHEMA]) == expected
    assert '[time {"zone": "UTC"}]<tool>12:00' in expected
    assert tokenizer.apply_chat_template(messages, tools=[SCHEMA]) == tokenizer.encode(expected)


def test_names_that_the_template_never_reads_are_found():
    template = byte_tokenizer(THINKING).chat_template
    names = ["enable_thinking", "effort", "enable_thinkin", "m"]
    assert template.unknown(names) == ["enable_thinkin", "m"]
    assert template.arguments() == ["effort", "enable_thinking"]
    assert template.unknown(["tools"], has_tools=True) == ["tools"]
    assert byte_tokenizer(TOOLS).chat_template.unknown(["tools"], has_tools=True) == []
    assert byte_tokenizer(TOOLS).chat_template.arguments() == []


@pytest.mark.parametrize("name", ["tokenize", "messages", "add_generation_prompt", "tools"])
def test_a_name_that_the_program_itself_gives_is_refused(name):
    with pytest.raises(ValueError, match=f"chat_template_args holds {name}"):
        byte_tokenizer(THINKING).render_chat([USER], chat_template_args={name: 1})


@pytest.mark.parametrize("tools", [[len], "time", 3])
def test_tools_that_are_no_schemas_are_refused(tools):
    with pytest.raises(ValueError, match="tools must be JSON schemas"):
        byte_tokenizer(TOOLS).render_chat([USER], tools=tools)


@pytest.mark.parametrize(
    ("template", "key"),
    [
        (THINKING, "reasoning_content"),
        ("{{ messages[0].thinking }}", "thinking"),
        ("{{ messages[0]['reasoning'] }}", "reasoning"),
        ("{% if 'reasoning_content' in messages[0] %}a{% endif %}", "reasoning_content"),
        (CHATML, None),
        (LLAMA3, None),
    ],
)
def test_the_name_of_reasoning_in_a_template_is_found(template, key):
    assert byte_tokenizer(template).chat_template.reasoning_key == key


def test_another_template_counts_at_once():
    tokenizer = byte_tokenizer(CHATML)
    tokenizer.wrapped.chat_template = THINKING
    assert tokenizer.chat_template.arguments() == ["effort", "enable_thinking"]


@pytest.mark.parametrize(
    "template", ["{% for %}", "{{ 1 +", "{{ 1 | no_filter }}", {"a": "x", "b": "y"}]
)
def test_a_template_that_cannot_be_read_is_refused_by_its_rendering_alone(template):
    tokenizer = byte_tokenizer(CHATML)
    tokenizer.wrapped.chat_template = template
    assert tokenizer.chat_template.reasoning_key is None
    assert tokenizer.chat_template.arguments() == []
    with pytest.raises(UnsupportedOperationError, match="refuses messages of the roles user"):
        tokenizer.render_chat([USER])

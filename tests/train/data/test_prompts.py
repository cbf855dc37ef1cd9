"""Where a user's text stands in a chat template, and files of prompts."""

import pytest

from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.train.data.prompts import UserFrame, find_user_frame, read_prompts
from tests.support.toy_chat import CHATML, LLAMA2, LLAMA3, byte_tokenizer

SAID = [{"role": "user", "content": "hi x y"}, {"role": "assistant", "content": "yo"}]


@pytest.mark.parametrize(
    ("template", "header", "footer"),
    [
        (
            CHATML,
            "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\n",
            "<|im_end|>\n<|im_start|>assistant\n",
        ),
        (LLAMA3, "<|bos|><|head|>user<|/head|>\n\n", "<|eot|><|head|>assistant<|/head|>\n\n"),
        (LLAMA2, "<s>[INST] ", " [/INST]"),
    ],
    ids=["chatml", "llama 3", "llama 2"],
)
def test_the_frame_is_what_stands_around_the_text(template, header, footer):
    assert find_user_frame(byte_tokenizer(template), []) == UserFrame(header, footer)


def test_the_frame_of_a_later_turn_holds_the_turns_before():
    frame = find_user_frame(byte_tokenizer(LLAMA2), SAID)
    assert frame.header == "<s>[INST] hi x y [/INST] yo </s><s>[INST] "
    assert frame.footer == " [/INST]"


@pytest.mark.parametrize(
    "template",
    [
        "no text at all",
        "{{ messages[-1].content }} again {{ messages[-1].content }} end",
        "{{ messages[-1].content | upper }} end",
        "user: {{ messages[-1].content }}\n",
    ],
    ids=["ignored", "twice", "changed", "no end"],
)
def test_a_template_that_hides_the_text_is_refused(template):
    with pytest.raises(UnsupportedOperationError, match="give a file of prompts"):
        find_user_frame(byte_tokenizer(template), [])


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def test_a_text_file_has_a_prompt_per_line(tmp_path):
    path = write(tmp_path, "p.txt", 'What is a?\r\n\n  {"prompt": "b"} \nc\u2028d\n')
    assert read_prompts(path) == [["What is a?"], ['{"prompt": "b"}'], ["c\u2028d"]]


def test_a_jsonl_file_has_prompts_or_turns(tmp_path):
    path = write(tmp_path, "p.jsonl", '{"prompt": "a", "id": 3}\n\n{"turns": ["b", "c"]}\n')
    assert read_prompts(path) == [["a"], ["b", "c"]]


@pytest.mark.parametrize(
    "line",
    [
        '"text"',
        "{}",
        '{"prompt": 3}',
        '{"prompt": " "}',
        '{"turns": []}',
        '{"turns": "ab"}',
        r'{"prompt": "\ud83d"}',
    ],
)
def test_a_wrong_line_is_named(tmp_path, line):
    path = write(tmp_path, "p.jsonl", f'{{"prompt": "a"}}\n{line}\n')
    with pytest.raises(MlxspecError, match=r"line 2 of .*p\.jsonl must be"):
        read_prompts(path)


def test_a_line_that_is_no_json_is_named(tmp_path):
    for line in ("hello\n", "[" * 100_000 + "\n"):
        with pytest.raises(MlxspecError, match=r"line 1 of .*p\.jsonl is not JSON"):
            read_prompts(write(tmp_path, "p.jsonl", line))


def test_a_file_without_prompts_is_refused(tmp_path):
    with pytest.raises(MlxspecError, match="is empty"):
        read_prompts(write(tmp_path, "p.txt", "\n  \n"))
    for name in ("none.txt", "none.toml"):
        with pytest.raises(MlxspecError, match="cannot be read"):
            read_prompts(tmp_path / name)

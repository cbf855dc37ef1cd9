"""What the authors of a model recommend to sample with, from its generation_config.json."""

import json

import pytest

from mlxspec.loading import load_model
from mlxspec.loading.folder import recommended_sampling
from tests.support.model_folders import save_folder

QWEN = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 0.8,
    "repetition_penalty": 1.1,
    "eos_token_id": [1],
}


def stated(tmp_path, text):
    (tmp_path / "generation_config.json").write_text(text)
    return recommended_sampling(tmp_path)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (QWEN, {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1}),
        ({"do_sample": True, "top_k": 64}, {"temperature": 1.0, "top_k": 64}),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}),
        ({"eos_token_id": 2, "bos_token_id": 1}, {}),
        ({"temperature": 0.6, "top_p": 7, "top_k": "many", "min_p": None}, {"temperature": 0.6}),
    ],
)
def test_what_the_file_states_is_taken_and_nothing_that_cannot_be(tmp_path, config, expected):
    assert stated(tmp_path, json.dumps(config)) == expected


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_missing_or_damaged_file_recommends_nothing(tmp_path, text):
    assert recommended_sampling(tmp_path) == {}
    assert stated(tmp_path, text) == {}


def test_a_loaded_model_tells_what_is_recommended(tmp_path):
    folder = save_folder(tmp_path / "m", generation_config=QWEN)
    assert load_model(folder).sampling["temperature"] == 0.7

"""What belongs to the whole process: MLX's random state, default device and stream stay."""

import mlx.core as mx
import pytest

import mlxspec
from mlxspec.params import GenerationParams, SamplingParams
from tests.support.model_folders import save_folder

SAMPLED = GenerationParams(max_tokens=6, sampling=SamplingParams(temperature=0.9), seed=3)


def surroundings():
    device = mx.default_device()
    return [key.tolist() for key in mx.random.state], device, mx.default_stream(device)


@pytest.mark.parametrize("drafter", ["none", "pool"])
def test_a_reply_leaves_them_as_they_were(drafter, tmp_path):
    folder = save_folder(tmp_path / "m")  # draws numbers of its own
    mx.random.seed(11)
    mx.random.uniform()
    before = surroundings()
    engine = mlxspec.load(str(folder), drafter=drafter)
    assert surroundings() == before
    list(engine.generate([1, 2, 3], SAMPLED))
    assert surroundings() == before
    list(engine.generate_batch([[1, 2, 3], [4]], SAMPLED))
    assert surroundings() == before
    batch = engine.open_batch()
    batch.join([1, 2], SAMPLED)
    while batch.num_replies:
        batch.step()
    assert surroundings() == before
    engine.close()
    assert surroundings() == before


def test_the_random_state_of_the_caller_decides_nothing(tmp_path):
    engine = mlxspec.load(str(save_folder(tmp_path / "m")), drafter="pool")
    said = []
    for seed in (1, 2):
        mx.random.seed(seed)
        said.append([reply.tokens for reply in engine.generate_batch([[1, 2, 3], [4]], SAMPLED)])
    assert said[0] == said[1]

"""The lengths of texts that `mlxspec bench --context` takes."""

import pytest

from mlxspec.bench.lengths import counts


def test_reads_lengths():
    assert counts("1k,8000, 100K", "--lengths") == [1024, 8000, 102_400]


@pytest.mark.parametrize("text", ["", "k", "1k,,2k", "-1", "0", "1.5k"])
def test_refuses_what_is_no_length(text):
    with pytest.raises(ValueError, match="--lengths"):
        counts(text, "--lengths")

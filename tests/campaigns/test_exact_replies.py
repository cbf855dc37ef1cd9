"""The count of exact replies runs, and sees a forward that is not padded."""

from mlxspec.decoder.decoder import Decoder
from mlxspec.params import Options
from tests.campaigns import exact_replies


def test_it_counts_replies_that_differ(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(exact_replies, "WEIGHTS", ("4 bits",))
    assert exact_replies.main(["--types", "llama", "--max-tokens", "8"]) == 0
    assert "in all 12 replies, 0 differ" in capsys.readouterr().out


def test_it_sees_a_row_that_depends_on_the_draft(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(exact_replies, "WEIGHTS", ("float32",))
    monkeypatch.setattr(exact_replies, "CACHES", {"full": Options()})
    assert exact_replies.main(["--types", "llama", "--max-tokens", "1"]) == 0  # examines
    forward = Decoder.forward_tree

    def off(decoder, tree):
        is_drafted = len(set(tree.tokens.tolist())) > 1
        return forward(decoder, tree) * (1 + is_drafted * 2.0**-20)

    monkeypatch.setattr(Decoder, "forward_tree", off)
    assert exact_replies.main(["--types", "llama", "--max-tokens", "8"]) == 1

"""`mlxspec verify` from the outside, on a tiny model: honest, broken and rounding ones."""

from dataclasses import replace

import mlx.core as mx
import pytest

import mlxspec.reply.verification as verification
from mlxspec.decoder.decoder import Decoder
from mlxspec.device import backend
from mlxspec.measure.tables import as_json
from mlxspec_cli.commands import verify as verify_command
from mlxspec_cli.main import main
from tests.support.broken_rules import say_the_second_best
from tests.support.gguf_files import tiny_config
from tests.support.model_folders import random_weights, save_folder
from tests.support.question_file import save_questions

WIDE_HEADS = tiny_config(num_attention_heads=1, num_key_value_heads=1, head_dim=32)


@pytest.fixture
def verify(tmp_path, monkeypatch, capsys):
    """Run `mlxspec verify`; return code, standard output, the JSON document, standard error."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    results = []

    def kept(result):
        results.append(result)
        return text(result)

    text = verify_command.text
    monkeypatch.setattr(verify_command, "text", kept)

    def run(*arguments, folder=None, drafters="suffix", caches="full", draws="20", questions=1):
        folder, path = folder or save_folder(tmp_path / "tiny"), save_questions(tmp_path, questions)
        words = ["verify", str(folder), "--prompts", str(path), "--max-tokens", "8", "--k", "4"]
        words += ["--drafters", drafters, "--caches", caches]
        words += [] if "--exact" in arguments else ["--draws", draws]
        words += ["--draft-model", str(small_model(tmp_path))] if "model" in drafters else []
        code = main([*words, *arguments])
        out, err = capsys.readouterr()
        last = as_json(results.pop()) if results else None
        return code, out, last, err

    return run


def small_model(folder):
    """A draft model with a mind of its own."""
    weights = random_weights(tiny_config(), seed=3)
    arrays = {name: mx.array(array) for name, array in weights.items()}
    return save_folder(folder / "small", weights=arrays)


def num_parted(document):
    return sum(
        len(found["partings"]) for cache in document["caches"] for found in cache["agreements"]
    )


def test_honest_drafters_pass_with_every_cache(verify, tmp_path):
    weights = {name: mx.array(array) for name, array in random_weights(WIDE_HEADS).items()}
    folder = save_folder(tmp_path / "wide", WIDE_HEADS, weights)
    code, out, last, err = verify(
        "--max-kv-size", "8", folder=folder, drafters="pool", caches="full,rotating,quantised"
    )
    assert code == 0
    kinds = [cache["cache"] for cache in last["caches"]]
    assert kinds == ["full", "rotating 8 (4 kept)", "full, 8-bit"]
    assert [check["drafter"] for check in last["distributions"]] == ["plain", "pool"]
    assert [check["fit"]["num_draws"] for check in last["distributions"]] == [20, 20]
    assert last["distributions"][1]["accepted"] > 5
    assert last["least_p_value"] == 5e-5
    assert last["is_lossless"]
    assert last["verdict_text"] == out.splitlines()[-1]
    verdicts = [line for line in err.splitlines() if "greedy replies are those of plain" in line]
    assert len(verdicts) == 3
    assert "cache rotating 8 (4 kept): 1 of 1 greedy replies" in err
    assert "the whole check takes about" in err
    assert "pool" in err  # the progress


def test_honest_drafters_pass_under_a_grammar(verify):
    words = ("--regex", "a(b|c)a(a|b|c)(ab|cc)", "--k", "4,6")
    code, out, last, _ = verify(*words, drafters="model", draws="40")
    assert code == 0
    assert last["grammar"] == "a regular expression"
    assert "greedy replies under a regular expression, compared with plain decoding" in out
    assert "3 chosen tokens under a regular expression at temperature 1" in out
    assert last["caches"][0]["agreements"][0]["num_tokens"] < 8  # the whole texts
    assert [check["fit"]["num_draws"] for check in last["distributions"]] == [40] * 2
    assert last["distributions"][1]["fit"]["freedom"] > 1


def test_a_cache_that_the_model_cannot_have_is_left_out_by_name(verify):
    code, out, last, _ = verify(drafters="", caches="quantised,full")
    assert code == 0
    assert "! a cache is skipped: quantised keys and values need a head size" in out
    assert [found["drafter"] for found in last["caches"][0]["agreements"]] == ["pool"]
    assert len(last["notes"]) == 1


def test_a_rule_that_accepts_too_often_bends_the_sampled_law_alone(verify, monkeypatch):
    right = verification.verify

    def generous(draft, distributions, noise, rule="block"):
        verdict = right(draft, distributions, noise, rule)
        if distributions.sampling.is_greedy or draft.tree.n_nodes == 1:
            return verdict
        accepted = mx.arange(draft.tree.n_nodes) < 2  # the root and the first draft token
        return replace(verdict, accepted=accepted, bonus_token=distributions.best()[1])

    monkeypatch.setattr(backend, "verifies_on_host", lambda: False)
    monkeypatch.setattr(verification, "verify", generous)
    code, out, last, _ = verify(drafters="model", draws="80", questions=3)
    assert code == 1
    assert last["is_off"] == ["model"]
    assert num_parted(last) == 0
    assert last["verdict"] == "not lossless"
    assert "WRONG" in out
    assert "model samples from another distribution" in out.splitlines()[-1]


def test_a_greedy_token_that_is_really_another_fails_the_run(verify, monkeypatch):
    say_the_second_best(monkeypatch)
    code, out, last, _ = verify()
    assert code == 1
    assert last["is_off"] == []
    assert num_parted(last) > 0
    assert "NOT A NEAR-TIE" in out
    assert "that no rounding explains" in out.splitlines()[-1]


def test_a_target_that_rounds_with_the_number_of_rows_is_told_from_a_broken_one(
    verify, tmp_path, monkeypatch
):
    """Pairs of tokens with the same logits, and a rounding that prefers the other one."""
    weights = random_weights(tiny_config())
    head = weights["lm_head.weight"]
    head[1::2] = head[::2]
    folder = save_folder(tmp_path / "pairs", weights={n: mx.array(w) for n, w in weights.items()})
    logits = Decoder.logits

    def rounded(self, hidden):
        found = logits(self, hidden)
        is_alone = hidden.ndim == 1 or hidden.shape[0] == 1
        return found if is_alone else found + 1e-3 * (mx.arange(found.shape[-1]) % 2)

    monkeypatch.setattr(Decoder, "logits", rounded)
    code, out, last, _ = verify(folder=folder, drafters="pool")
    assert code == 0
    assert num_parted(last) > 0
    assert last["verdict"] == "near-ties"
    assert last["caches"][0]["drift"]["largest"] == pytest.approx(1e-3, rel=0.1)
    assert out.splitlines()[-1].startswith("identical up to near-ties of at most")
    assert "NOT A NEAR-TIE" not in out


def test_who_drafts_nothing_or_breaks_down_is_named(verify, monkeypatch):
    def broken(self, root, budget):
        raise ValueError("no draft today")

    monkeypatch.setattr("mlxspec.drafters.suffix.SuffixDrafter.propose", broken)
    code, out, _, _ = verify()
    assert code == 0
    assert "! suffix failed in 1 replies, cache full: no draft today" in out
    assert "! suffix drafted nothing in its replies, cache full" in out
    assert "! suffix failed in 20 samples" in out


@pytest.mark.parametrize(
    ("words", "stops_in", "said"),
    [
        ((), "mlxspec.bench.sampled.draw", "2 greedy replies compared with plain decoding, none"),
        (("--exact",), "mlxspec.bench.exact._different", "stopped before a drafter was compared"),
    ],
)
def test_one_who_stops_it_is_told_what_was_compared(verify, monkeypatch, words, stops_in, said):
    def stop(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(stops_in, stop)
    code, out, _, err = verify(*words, questions=2)
    assert (code, out) == (130, "")
    assert said in err.splitlines()[-1]


def test_without_a_model_it_ends_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    assert main(["verify"]) == 1
    assert "there is no default model here: get it with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--caches", "ring"), "cache 'ring' is not known; choose from full, rotating, quantised"),
        (("--caches", ","), "--caches names none"),
        (("--drafters", "eagle"), "drafter 'eagle' is not known"),
        (("--k", "4,0"), "--k takes numbers"),
        (("--k", "many"), "--k takes numbers"),
        (("--draws", "0"), "--draws must be 1 or more"),
        (("--max-tokens", "0"), "--max-tokens must be 1 or more"),
        (("--max-tokens", "500"), "smaller --max-tokens"),
        (("--limit", "0"), "1 or more; got 0"),
        (("--max-kv-size", "3", "--caches", "rotating"), "max_size must be larger"),
        (("--regex", "a", "--choices", "a,b"), "give only one of --json-schema, --regex"),
        (("--regex", "("), "the regular expression cannot be served"),
        (("--json-schema", "none.json"), "none.json"),
        (("--kv-bits", "5", "--caches", "quantised"), "kv_bits must be 4 or 8; got 5"),
    ],
)
def test_a_wrong_argument_is_one_line_and_2(verify, arguments, message):
    code, _, _, err = verify(*arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err

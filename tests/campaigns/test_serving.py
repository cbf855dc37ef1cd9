"""The arithmetic of the serving campaign, with values worked out by hand."""

import numpy as np
import pytest

from tests.campaigns.serving.figures import growths, percentile, table
from tests.campaigns.serving.parting import gap_at, parting
from tests.campaigns.serving.process import OURS, Served
from tests.support.served import MESSAGES, TARGET, TOKENIZER, listening, true_text


def samples(rss_mb, threads=lambda i: 9, files=lambda i: 30, count=30):
    rows = range(count)
    return [
        {"hours": i / 60, "rss_mb": rss_mb(i), "threads": threads(i), "files": files(i)}
        for i in rows
    ]


@pytest.mark.parametrize(
    ("values", "percent", "true"),
    [([3.0], 95, 3.0), ([1.0, 2.0, 4.0], 50, 2.0), ([4.0, 1.0, 2.0, 3.0], 50, 2.5)],
)
def test_a_percentile_lies_between_its_neighbours(values, percent, true):
    assert percentile(values, percent) == true


def test_the_95th_percentile_of_0_to_100_is_95():
    assert percentile(list(range(101)), 95) == 95


def test_a_process_that_fills_its_caches_first_is_flat():
    found = growths(samples(lambda i: min(600, 400 + 50 * i)))
    assert [growth.name for growth in found] == ["rss_mb", "threads", "files"]
    assert all(growth.is_allowed for growth in found)
    assert (found[0].first, found[0].last) == (600, 600)


def test_steady_growth_is_found_though_every_step_is_small():
    # 24 samples are judged, 6 to 29: medians of 6 to 13 and of 22 to 29
    rss, *others = growths(samples(lambda i: 500 + 4 * i))
    assert (rss.first, rss.last) == (538, 602)
    assert rss.per_hour == pytest.approx(240)
    assert not rss.is_allowed
    assert all(growth.is_allowed for growth in others)


@pytest.mark.parametrize("name", ["threads", "files"])
def test_one_more_every_other_sample_is_found(name):
    found = growths(samples(lambda i: 500, **{name: lambda i: 9 + i // 2}))
    assert [growth.name for growth in found if not growth.is_allowed] == [name]


def test_a_spike_is_no_growth():
    found = growths(samples(lambda i: 5000 if i == 28 else 500))
    assert all(growth.is_allowed for growth in found)


def test_few_samples_are_not_judged():
    assert growths(samples(lambda i: 500, count=6)) == []


def test_a_table_has_a_row_for_each():
    rows = [{"server": "a", "seconds": 1.234}, {"server": "b", "seconds": 2.0}]
    assert table(rows).splitlines() == [
        *("| server | seconds |", "| --- | --- |", "| a | 1.23 |", "| b | 2.00 |")
    ]


def test_a_parting_has_the_gap_of_the_target_there():
    text = true_text(MESSAGES)
    other = text[:4] + chr(ord(text[4]) + 1)
    with listening() as (port, _):
        server = Served(OURS, f"http://127.0.0.1:{port}", "tiny", 0)
        found = parting(server, MESSAGES[0]["content"], (text, other), 10)
    prompt = TOKENIZER.encode(TOKENIZER.render_chat(MESSAGES), add_special_tokens=False)
    before = TARGET.greedy(prompt, len(text[:4].encode()))
    second, first = np.sort(np.asarray(TARGET.logits((*prompt, *before))))[-2:]
    assert found.num_same == 4
    assert found.gap == pytest.approx(first - second, abs=1e-3)
    assert found.is_near_tie == (found.gap < 0.01)


def test_a_token_may_be_a_part_of_a_character():
    def row(raw, *logprobs):
        return {"bytes": list(raw), "top_logprobs": [{"logprob": each} for each in logprobs]}

    e_acute = "é".encode()
    rows = [row(e_acute[:1], -1, -2), row(e_acute[1:], -1, -3), row(b"a", -1, -5)]
    assert gap_at(rows, "é") == 4
    assert gap_at(rows, "") == 1

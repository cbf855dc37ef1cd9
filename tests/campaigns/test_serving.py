"""The arithmetic of the serving campaign, with values worked out by hand."""

import numpy as np
import pytest

from tests.campaigns.serving.hostile import growths
from tests.campaigns.serving.load import gap_at, parting, percentile, table
from tests.campaigns.serving.servers import OURS, Served
from tests.support.served import MESSAGES, TARGET, TOKENIZER, listening, true_text

STEADY = {"rss_mb": lambda i: 500, "threads": lambda i: 9, "files": lambda i: 30}


@pytest.mark.parametrize(
    ("values", "percent", "true"),
    [
        ([3.0], 95, 3.0),
        ([1.0, 2.0, 4.0], 50, 2.0),
        ([4.0, 1.0, 2.0, 3.0], 50, 2.5),
        (range(101), 95, 95),
    ],
    ids=str,
)
def test_a_percentile_lies_between_its_neighbours(values, percent, true):
    assert percentile(values, percent) == true


@pytest.mark.parametrize(
    ("changed", "grown"),
    [
        ({"rss_mb": lambda i: min(600, 400 + 50 * i)}, []),
        ({"rss_mb": lambda i: 5000 if i == 28 else 500}, []),
        ({"rss_mb": lambda i: 500 + 4 * i}, ["rss_mb"]),
        ({"threads": lambda i: 9 + i // 2}, ["threads"]),
        ({"files": lambda i: 30 + i // 2}, ["files"]),
    ],
    ids=["caches fill", "a spike", "steady growth", "one more thread", "one more file"],
)
def test_growth_is_found_and_what_happens_once_is_none(changed, grown):
    figures = STEADY | changed
    samples = [{"hours": i / 60} | {name: of(i) for name, of in figures.items()} for i in range(30)]
    assert [one.name for one in growths(samples) if not one.is_allowed] == grown
    assert growths(samples[:6]) == []  # too few of them


def test_growth_is_that_from_the_first_third_behind_the_warm_up_to_the_last():
    # 24 samples are judged, 6 to 29: medians of 6 to 13 and of 22 to 29
    samples = [
        {"hours": i / 60, "rss_mb": 500 + 4 * i, "threads": 9, "files": 30} for i in range(30)
    ]
    rss = growths(samples)[0]
    assert (rss.first, rss.last, rss.per_hour) == (538, 602, pytest.approx(240))


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

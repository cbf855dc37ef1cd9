"""Exact replies of two processes: drafted as plain, to the bit, and the ranks stay in step."""

import pytest

from tests.support.ranks import run_script
from tests.support.shared_folders import save_shared

SCRIPT = """
import json, sys
from dataclasses import replace
from hashlib import sha256
from mlxspec import api
from mlxspec.drafting import engines
from mlxspec.loading.exactness import exact_form
from mlxspec.params import Options
from tests.support.ranks import PROMPT
from tests.support.shared_replies import PARAMS
from tests.support.told_bits import ToldBits

def written(engine, prompt, params):
    told = ToldBits(params)
    *_, last = engine.generate(prompt, told.params)
    bits = sha256(b"".join(row for _, row in told.bits)).hexdigest()
    tokens = [token for token, _ in told.bits]
    return {"tokens": tokens, "hash": last.stats["token_hash"], "bits": bits,
            "drafted": last.stats["drafted"]}

folder, hosts = sys.argv[1:]
found = {}
with api.load(folder, drafter="none") as engine:
    exact_form(engine.target)  # that of one process is not that of two
options = Options(drafter="none", hosts=hosts)
prepared = api.prepare(folder, options, say=lambda line: None)
for drafter in ("none", "pool"):
    given = replace(options, drafter=drafter)
    prepared = engines.change_drafter(prepared, given, say=lambda line: None)
    engine = prepared.engine
    for name, params in PARAMS.items():
        first = written(engine, PROMPT, replace(params, exact=True))
        usual = written(engine, PROMPT * 3, params)
        again = written(engine, PROMPT, replace(params, exact=True))
        found[f"{drafter} {name}"] = {"exact": first, "again": again, "usual": usual["tokens"]}
form = exact_form(engine.target)
print(json.dumps({"replies": found, "most": form.most_nodes}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    root = tmp_path_factory.mktemp("exact")
    folder = save_shared(root / "own", "own")
    return run_script(SCRIPT, folder, "2", MLXSPEC_HOME=str(root / "home"))


def test_two_ranks_write_an_exact_reply_that_is_drafted_as_they_write_it_plain(found):
    replies = found["replies"]
    assert found["most"] > 0
    for name in ("greedy", "sampled"):
        plain, drafted = (replies[f"{drafter} {name}"]["exact"] for drafter in ("none", "pool"))
        assert drafted.pop("drafted") > plain.pop("drafted") == 0
        assert drafted == plain
        assert len(set(plain["tokens"])) > 2


def test_two_ranks_stay_in_step_between_exact_and_usual_replies(found):
    for one in found["replies"].values():
        one["again"].pop("drafted"), one["exact"].pop("drafted", None)
        assert one["again"] == one["exact"]

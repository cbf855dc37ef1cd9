"""The parts of a report, each for a few seconds, on the default model."""

import pytest

from mlxspec.report.collect import collect, run_part
from mlxspec.report.document import Report, read_report, to_text
from mlxspec.report.plan import PARTS
from mlxspec.report.reading import compare, is_lossless

SECONDS = 5.0
NAMES = ("forwards", "lossless", "products")


@pytest.mark.usefixtures("own_facts")
def test_the_real_parts_find_something_and_nothing_that_is_broken(tmp_path):
    parts = [part for part in PARTS if part.name in NAMES]
    records = collect(
        parts, lambda found: None, lambda line: None, run=lambda part, _: run_part(part, SECONDS)
    )
    assert {record.status for record in records.values()} <= {"done", "out of time"}
    assert {"forwards", "products"} <= {name for name in NAMES if records[name].found}
    path = tmp_path / "mac.json"
    path.write_text(to_text(records))
    assert is_lossless(compare(read_report(path)))
    assert compare(read_report(path)) != compare(Report({}))

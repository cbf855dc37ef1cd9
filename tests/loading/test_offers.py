"""Models that are worth fetching: the list is sound, and says what this machine makes of them."""

import math
import os
import re
from datetime import date

import pytest

from mlxspec.device import backend
from mlxspec.drafting import catalogue
from mlxspec.loading.fetch.offers import Offer, offers, offers_date, recommended
from mlxspec_cli.main import main
from tests.support.hub_cache import cached_folder, use_hub_cache
from tests.support.model_folders import save_folder

QWEN = "mlx-community/Qwen2.5-0.5B-Instruct-4bit"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "_bandwidth", lambda: 100.0)
    return use_hub_cache(tmp_path, monkeypatch)


@pytest.mark.parametrize("offer", offers(), ids=lambda offer: offer.repository)
def test_an_offer_has_a_hub_id_a_licence_and_a_size_that_its_weights_account_for(offer):
    assert re.fullmatch(r"[\w-]+/[\w.-]+-4bit", offer.repository)
    assert offer.licence
    # four bits, a scale and a bias; parts that read pictures have more
    assert 4.4 < 8 * offer.download_gb / offer.weights < 5.6
    assert 0 < offer.active <= offer.weights


def test_the_table_is_dated_sorted_by_size_and_has_a_model_for_every_machine():
    sizes = [offer.download_gb for offer in offers()]
    assert sizes == sorted(sizes)
    tiers = [offer.from_gb for offer in offers() if offer.from_gb < math.inf]
    assert tiers == [0, 16, 24, 32]
    assert [offer.for_cpu for offer in offers()].count(True) == 1
    assert date(2026, 11, 1) <= offers_date()


@pytest.mark.parametrize(
    ("memory", "usable", "name"),
    [
        (8.6, 5.7, "LFM2.5-1.2B-Instruct-4bit"),
        (17.2, 11.5, "Qwen3.5-4B-MLX-4bit"),
        (25.8, 17.2, "Qwen3.5-9B-4bit"),
        (34.4, 22.9, "Qwen3-30B-A3B-4bit"),
        (128.0, 15.0, "Qwen3.5-9B-4bit"),  # a small GPU in a large machine
        (128.0, 127.0, "Qwen2.5-0.5B-Instruct-4bit"),  # a CPU
        (0.5, 0.4, None),
    ],
)
def test_the_model_for_a_machine_is_the_largest_of_its_tier_that_fits(
    monkeypatch, memory, usable, name
):
    monkeypatch.setattr(backend, "is_cpu", lambda: usable == 127.0)
    monkeypatch.setattr(backend, "memory_gb", lambda: memory)
    monkeypatch.setattr("mlxspec.loading.fetch.offers.usable_gb", lambda: usable)
    found = recommended()
    assert (found and found.repository.removeprefix("mlx-community/")) == name


@pytest.mark.parametrize(("stays", "memory", "read"), [(True, 17.2, 1.72), (False, 120.0, 12.0)])
def test_memory_and_what_a_token_reads_depend_on_the_form_that_weights_have_here(
    monkeypatch, stays, memory, read
):
    monkeypatch.setattr(backend, "keeps_weights_as_stored", lambda: stays)
    mixture = Offer("org/m", "MIT", 17.2, 30.0, 3.0)
    assert mixture.memory_gb == pytest.approx(memory)
    assert mixture.read_gb == pytest.approx(read)


def test_speed_is_what_the_bandwidth_allows_and_what_is_here_is_not_offered(hub, monkeypatch):
    monkeypatch.setattr(backend, "keeps_weights_as_stored", lambda: True)
    first = catalogue.list_offers()[0]
    assert (first.source, first.is_here) == (QWEN, False)
    assert first.expected_tps == pytest.approx(100 / 0.28, abs=0.05)
    save_folder(cached_folder(hub, QWEN))
    assert QWEN not in [offer.source for offer in catalogue.list_offers()]


def test_a_speed_that_is_not_known_is_not_told(hub, monkeypatch, capsys):
    monkeypatch.setattr(catalogue, "_bandwidth", lambda: 0.01)
    assert {offer.expected_tps for offer in catalogue.list_offers()[1:]} == {None}
    monkeypatch.setattr(catalogue, "_bandwidth", lambda: 100.0)
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0,) * 3)
    assert {offer.expected_tps for offer in catalogue.list_offers()} == {None}
    assert main(["models"]) == 0
    assert "without drafts" not in capsys.readouterr().out


def test_the_command_lists_them_below_what_is_here_with_the_date(hub, capsys):
    assert main(["models"]) == 0
    here, _, worth = capsys.readouterr().out.partition(f"Worth downloading, as of {offers_date()}")
    assert "SmolLM2-135M-Instruct" in here
    assert f"{QWEN}  0.28 GB to download\n    Apache-2.0; fits; about " in worth


def test_the_command_fetches_a_model_by_its_name(hub, capsys):
    folder = save_folder(cached_folder(hub, QWEN))
    assert main(["models", QWEN, "--fetch"]) == 0
    assert capsys.readouterr().out.strip() == str(folder)

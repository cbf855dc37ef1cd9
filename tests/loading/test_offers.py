"""Models that are worth fetching: the list is sound, and says what this machine makes of them."""

import re

import pytest

from mlxspec.device import backend
from mlxspec.drafting import catalogue
from mlxspec.loading.fetch.models import Offer, offers, offers_date
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
    assert 4.4 < 8 * offer.download_gb / offer.weights < 4.7  # four bits, a scale and a bias
    assert 0 < offer.active <= offer.weights


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
    assert first.expected_tps == pytest.approx(100 / 0.28)
    save_folder(cached_folder(hub, QWEN))
    assert QWEN not in [offer.source for offer in catalogue.list_offers()]


def test_the_command_lists_them_below_what_is_here_with_the_date(hub, capsys):
    assert main(["models"]) == 0
    here, _, worth = capsys.readouterr().out.partition(f"Worth downloading, as of {offers_date()}")
    assert "SmolLM2-135M-Instruct" in here
    assert f"{QWEN}  0.28 GB to download\n    Apache-2.0; fits; about " in worth


def test_the_command_fetches_a_model_by_its_name(hub, capsys):
    folder = save_folder(cached_folder(hub, QWEN))
    assert main(["models", QWEN, "--fetch"]) == 0
    assert capsys.readouterr().out.strip() == str(folder)

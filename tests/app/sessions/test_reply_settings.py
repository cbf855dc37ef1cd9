"""What a chat draws with: what the user gave, else what the model recommends, else the usual."""

import pytest

from mlxspec.params import GenerationParams, SamplingParams
from mlxspec_app.sessions.session import OWN, USUAL, ReplySettings

USUAL_SAMPLING = SamplingParams(temperature=0.7, top_p=0.9)


def test_a_chat_is_sampled_and_ends_loops_where_nobody_says_otherwise():
    settings = ReplySettings(GenerationParams(seed=3), ())
    assert settings.params == GenerationParams(seed=3, sampling=USUAL_SAMPLING, stop_repeats=True)
    assert settings.origins() == {"temp": USUAL, "top_p": USUAL}
    assert settings.adjustable()["temp"] == "0.7"
    assert settings.adjustable()["stop_repeats"] == "on"


def test_the_model_comes_before_the_usual_and_the_user_before_the_model():
    given = GenerationParams(sampling=SamplingParams(temperature=0.0))
    settings = ReplySettings(given, ("temp",))
    settings.suggest({"temperature": 0.6, "top_p": 0.95, "top_k": 20})
    assert settings.params.sampling == SamplingParams(top_p=0.95, top_k=20)
    assert settings.origins() == {"top_p": OWN, "top_k": OWN}
    settings.suggest({})  # another model, which recommends nothing
    assert settings.params.sampling == SamplingParams(top_p=0.9)


def test_a_word_of_the_user_holds_for_the_next_model_too_until_it_is_taken_back():
    settings = ReplySettings(GenerationParams(), ())
    settings.adjust("temp", "1.2")
    settings.adjust("stop_repeats", "off")
    settings.suggest({"temperature": 0.6})
    assert settings.params.sampling.temperature == 1.2
    assert not settings.params.stop_repeats
    settings.adjust("temp", "")
    settings.adjust("stop_repeats", "")
    assert settings.params.sampling.temperature == 0.6
    assert settings.params.stop_repeats


def test_a_refused_word_changes_nothing():
    settings = ReplySettings(GenerationParams(), ())
    with pytest.raises(ValueError, match="temperature must be"):
        settings.adjust("temp", "-1")
    assert settings.params.sampling == USUAL_SAMPLING
    assert settings.origins()["temp"] == USUAL


def test_what_the_template_reads_is_told_until_the_user_gives_a_switch():
    settings = ReplySettings(GenerationParams(), ())
    settings.suggest({}, ["enable_thinking"])
    assert settings.origins()["template"] == "none; the model's template reads enable_thinking"
    settings.adjust("template", "enable_thinking=false")
    assert "template" not in settings.origins()
    assert settings.params.chat_template_args == {"enable_thinking": False}
    settings.adjust("template", "")
    assert settings.params.chat_template_args == {}

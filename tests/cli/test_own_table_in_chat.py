"""A table made in the chat is used at once if it drafts better, by the drafter that is there."""

import pytest

from mlxspec.train import own_table
from mlxspec.train.own_table import TableVerdict
from mlxspec_app.conversation.events import ModelChoice, TableProgress
from mlxspec_cli.chat_models import SessionModels
from mlxspec_cli.parser import build_parser
from tests.support.chat_folders import save_chat_folder


@pytest.mark.parametrize(("after", "is_used"), [(2.0, True), (1.0, False)])
def test_only_a_better_table_is_used(tmp_path, monkeypatch, after, is_used):
    def make(loaded, seconds):
        yield own_table.TableProgress(0.5, 12)
        yield TableVerdict(after, 1.5)

    args = build_parser().parse_args(["chat", "--data-dir", str(tmp_path)])
    models, told = SessionModels(args, ModelChoice()), []
    folder = str(save_chat_folder(tmp_path / "toy"))
    models.open_conversation(ModelChoice(folder, "pool"), print)
    before = models._prepared.engine.drafter
    monkeypatch.setattr(own_table, "make_own_table", make)
    models.say = told.append
    assert list(models.make_table()) == [TableProgress(0.5, 12)]
    assert (models._prepared.engine.drafter is not before) is is_used
    assert models._prepared.choice.drafter == "pool"
    assert told[-1] == str(TableVerdict(after, 1.5))

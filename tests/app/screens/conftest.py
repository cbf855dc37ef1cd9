"""What the tests of screens share."""

import pytest

from tests.support.kept_talk import KeptTalk


@pytest.fixture
def talk(tmp_path):
    talk = KeptTalk(tmp_path)
    yield talk
    talk.close()

"""Arms with scripted replies, and benchmark rows of these replies."""

from mlxspec.bench.prompts import Question
from mlxspec.bench.run import Case, Row
from mlxspec.measure.trial import Trial


def reply_of(tokens, seconds=1.0, **more) -> Trial:
    """A reply whose tokens but the first came in so many seconds, one per forward."""
    settings = {
        "prompt_tokens": 3,
        "ttft_s": 0.5,
        "first_tokens": 1,
        "forwards": len(tokens),
        **more,
    }
    return Trial(tokens=tuple(tokens), seconds=seconds, **settings)


def case_of(number=1, category="qa", temp=0.0, repeat=0, turns=("ab",)) -> Case:
    return Case(Question(str(number), category, tuple(turns)), temp, repeat)


def row_of(case, arm, *replies, differences=()) -> Row:
    return Row(case, arm, tuple(replies), tuple(differences))


class ScriptedArm:
    """Replies with the text of `script` for a prompt; records prompts and the order of all arms."""

    def __init__(self, name, script, order=None):
        self.name = name
        self.script = script
        self.order = order if order is not None else []
        self.prompts = []
        self.begun = 0

    def begin(self):
        self.begun += 1

    def write(self, prompt, params):
        self.prompts.append(list(prompt))
        self.order.append(self.name)
        return reply_of(self.script(prompt, params))

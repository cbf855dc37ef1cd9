"""A drafter in thirty lines: what followed the last two tokens the last time they stood there.

It is asked for a draft with the token at the root, and told in `update` what became of it. What the
target says does not depend on it: the text below is written twice, without it and with it.
"""

import mlxspec
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.none import NoDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.trace.events import GenerationFinished, text_of


class LastTime(Drafter):
    """Copies what followed the last time."""

    name = "last-time"

    def start(self, prompt, sampling, key):
        """Take the prompt; its last token is the first root."""
        self.tokens = list(prompt[:-1])

    def propose(self, root, budget):
        """Return a chain below the root, at most `budget` tokens long."""
        text = [*self.tokens, root]
        places = range(len(text) - 3, -1, -1)
        found = next((at for at in places if text[at : at + 2] == text[-2:]), None)
        if found is None:
            return Draft.empty(root)
        chain = [root, *text[found + 2 :][: min(budget, 6)]]
        return Draft.from_lists(chain, range(-1, len(chain) - 1), [self.name] * (len(chain) - 1))

    def update(self, round):
        """Take the tokens that are now certain, but for the next root."""
        self.tokens += [round.tokens[0], *round.accepted]


engine = mlxspec.load(drafter="none")
params = mlxspec.GenerationParams(max_tokens=32)
for drafter in (NoDrafter(), LastTime()):
    for event in engine.generate("a b c d e f, a b c d", params, drafter=drafter):
        print(text_of(event), end="")
        if isinstance(event, GenerationFinished):
            print(f"\n-- {drafter.name}: {event.stats['target_forwards']} forwards\n")

"""The smallest drafter there is, and the judge that every drafter has to pass.

`check_drafter` lets it draft for a tiny target: greedy replies have to be the target's own, token
by token, and sampled ones have to follow its joint distribution. No model is downloaded.
"""

from mlxspec import GenerationParams
from mlxspec.drafters.base import Drafter
from mlxspec.drafts.draft import Draft
from mlxspec.testing import check_drafter, tiny_engine


class Again(Drafter):
    """Proposes that the root comes once more."""

    def propose(self, root, budget):
        """Return one node below the root, or none where there is no room."""
        if budget == 0:
            return Draft.empty(root)
        return Draft.from_lists(tokens=[root, root], parents=[-1, 0], sources=[self.name])


report = check_drafter(lambda target: Again(), num_draws=24)  # more draws find smaller faults
print(f"{report.num_accepted} of {report.num_drafted} draft tokens were accepted")

engine = tiny_engine(Again())
print(engine.generate_text([1, 2, 3], GenerationParams(max_tokens=12)))

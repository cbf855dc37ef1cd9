"""Show every round: what was drafted, what of it the model keeps, what it says instead."""

import mlxspec
from mlxspec.trace.events import DraftProposed, DraftVerified, GenerationFinished, PlainDecoded

engine = mlxspec.load(drafter="pool")
prompt = "Monday, Tuesday, Wednesday. Monday, Tuesday,"
for event in engine.generate(prompt, mlxspec.GenerationParams(max_tokens=32)):
    match event:
        case DraftProposed(r=number, nodes=nodes):
            print(f"round {number} drafts {[node.text for node in nodes]}")
        case DraftVerified(emit=emit):
            print(f"  told: {[(token.text, token.kind) for token in emit]}")
        case PlainDecoded(r=number, emit=emit):
            print(f"round {number} is plain: {emit[0].text!r}")
        case GenerationFinished(reason=reason, stats=stats):
            print(f"{reason}: {stats['accepted']} of {stats['drafted']} drafted tokens were kept")

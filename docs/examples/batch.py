"""Answer many prompts with one forward a round for all of them, each with settings of its own."""

import mlxspec

PLACES = ("the sea", "a desert", "an old forest", "the moon")

engine = mlxspec.load(drafter="pool")
prompts = [f"In {place} you can find" for place in PLACES]
params = [mlxspec.GenerationParams(max_tokens=24, seed=seed) for seed in range(len(prompts))]
for reply in engine.generate_batch(prompts, params, batch_size=len(prompts)):
    print(f"{prompts[reply.index]} ...{reply.text!r} ({reply.finish_reason})")

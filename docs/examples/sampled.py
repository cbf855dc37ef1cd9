"""Draw at temperature 0.8: a seed has one text, and `exact_seed` keeps it for every drafter."""

import mlxspec

sampling = mlxspec.SamplingParams(temperature=0.8, top_p=0.95)
engines = [mlxspec.load(drafter=word) for word in ("none", "pool")]
for seed in (1, 2):
    params = mlxspec.GenerationParams(max_tokens=24, sampling=sampling, seed=seed, exact_seed=True)
    for engine in engines:
        print(f"seed {seed}, {engine.drafter.name}: {engine.generate_text('Yesterday', params)!r}")

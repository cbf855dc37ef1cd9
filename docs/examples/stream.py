"""Print a reply as it is made, and how fast that was."""

import mlxspec
from mlxspec.trace.events import GenerationFinished, text_of

engine = mlxspec.load()
for event in engine.generate("The capital of France is", mlxspec.GenerationParams(max_tokens=48)):
    print(text_of(event), end="", flush=True)
    if isinstance(event, GenerationFinished):
        print(f"\n{event.stats['generation_tps']:.0f} tokens/s, drafted by {engine.drafter.name}")

"""A script for mlx-lm with one import changed; drafts come by themselves."""

from mlxspec.compat import load, make_sampler, stream_generate

model, tokenizer = load("default")
sampler = make_sampler(temp=0.0)
for response in stream_generate(model, tokenizer, "1, 2, 3,", max_tokens=24, sampler=sampler):
    print(response.text, end="", flush=True)
print(f"\n{response.generation_tps:.0f} tokens/s, {response.finish_reason}")

"""Measures drafters against plain decoding and against other projects: `mlxspec bench`.

All arms run in one process over the same weights and prompts, prompt by prompt and in rotating
order: other work of the machine slows down all arms alike. The figures that count are ratios
within a prompt, and those that no machine changes: tokens and rows per target forward.
"""

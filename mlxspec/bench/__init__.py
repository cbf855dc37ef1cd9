"""Measures drafters against plain decoding and against other projects: `mlxspec bench`.

All arms run in one process over the same weights and prompts, prompt by prompt and in rotating
order, so other work on the machine slows down all arms alike. The figures that count are ratios
within a prompt, and figures that do not depend on the machine: tokens and rows per target forward.
"""

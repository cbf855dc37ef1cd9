"""Measures drafters against plain decoding and against other projects: `mlxspec bench`.

All arms run in one process over the same weights and prompts, prompt by prompt and in rotating
order, so that whatever else the machine does meets all of them alike. What counts are ratios
within a prompt, and figures that no machine changes: tokens and rows per target forward.
"""

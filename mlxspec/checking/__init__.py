"""Checks on the user's machine whether speculation changes the output distribution of a model.

`greedy` compares replies token by token, `sampled` compares samples with the exact distribution,
and `measure/drift.py` compares rows in wide forwards with the same rows alone. `run` does all
three, and `report` shows the results.
"""

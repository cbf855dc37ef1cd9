"""Whether speculation changes what a model says, found out on the user's machine.

`greedy` compares replies token by token, `sampled` draws with the exact law, `drift` rows among
others with the same rows alone; `run` does all three, and `report` says what came of it.
"""

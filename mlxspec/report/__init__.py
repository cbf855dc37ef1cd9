"""What only a Mac can tell: measured there in ten minutes, kept in one file, read elsewhere.

`collect` runs the `parts`, each in a process of its own, so that one which crashes or takes too
long costs only itself. `document` is the file, `scrubbing` keeps names and paths out of it, and
`reading` compares it with what the tests assume.
"""

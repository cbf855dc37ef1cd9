"""The report of a Mac: measured there in ten minutes, stored in one file, read elsewhere.

`collect` runs the `parts`, each in a process of its own, so that one that crashes or takes too long
loses only its own findings. `document` is the file, `scrubbing` removes names and paths from it,
and `reading` compares it with the assumptions of the code.
"""

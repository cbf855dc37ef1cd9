"""One thread at a time imports what leans on MLX and transformers.

The app does so beside its screen: to load a model, to describe the machine, to list what is here.
Two threads in the midst of importing transformers each find half of it.
"""

from threading import Lock

IMPORTING = Lock()

"""The store of chats: a SQLite file with every message, branch and reply.

`opening` opens the file, `writer` and `bin` change it, `reader` reads and searches it, `recorder`
turns the events of a session into changes, and `thread` runs all of that in a thread of its own.
"""

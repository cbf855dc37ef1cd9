"""The store of chats: a SQLite file with every message, branch and reply.

`database` opens the file, `writer` changes it, `reader` reads and searches it, `recorder`
turns the events of a session into changes, and `thread` runs all of that in a thread of its own.
"""

"""The store of chats: a SQLite file that keeps every message, branch and reply.

`opening` opens the file, `writer` and `bin` change it, `reader` reads and searches it, `recorder`
turns the events of a session into changes, and `thread` does that beside the screen.
"""

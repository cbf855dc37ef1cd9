-- Chats as trees of messages. The schema itself keeps a tree a tree: a parent is older than its
-- children and of the same chat, and the leaf of a chat is one of its messages.
PRAGMA application_id = 0x6D6C7873;  -- "mlxs"

CREATE TABLE chat (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    title    TEXT NOT NULL,
    created  REAL NOT NULL,  -- seconds since 1970, UTC, as every time in this file
    updated  REAL NOT NULL,
    system   TEXT,           -- system prompt; NULL for what the chat template does by itself
    settings TEXT NOT NULL CHECK (json_valid(settings)),
    leaf     INTEGER,        -- where the conversation goes on; NULL while it is empty
    deleted  REAL,           -- NULL for a chat that is shown
    FOREIGN KEY (id, leaf) REFERENCES message (chat, id) DEFERRABLE INITIALLY DEFERRED
) STRICT;
CREATE INDEX chat_by_age ON chat (updated);

CREATE TABLE message (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    chat    INTEGER NOT NULL REFERENCES chat (id) ON DELETE CASCADE,
    parent  INTEGER CHECK (parent < id),
    depth   INTEGER NOT NULL CHECK (depth > 0),  -- messages from the first to this one
    role    TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    state   TEXT NOT NULL CHECK (state IN ('finished', 'partial', 'failed')),
    text    TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (chat, id),
    -- No cascade from parent to child: a long chat would exceed the depth of SQLite's triggers.
    FOREIGN KEY (chat, parent) REFERENCES message (chat, id) DEFERRABLE INITIALLY DEFERRED
) STRICT;
CREATE INDEX message_by_parent ON message (chat, parent);

-- What a reply grew by since its text was last written: adding a row costs the same however long
-- the reply is. Text and pieces, in order, are the reply.
CREATE TABLE piece (
    message INTEGER NOT NULL REFERENCES message (id) ON DELETE CASCADE,
    number  INTEGER NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (message, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE generation (
    message  INTEGER PRIMARY KEY REFERENCES message (id) ON DELETE CASCADE,
    target   TEXT NOT NULL,
    drafter  TEXT NOT NULL,
    settings TEXT NOT NULL CHECK (json_valid(settings)),
    seed     TEXT,           -- decimal digits: a seed may exceed SQLite's integers
    stats    TEXT NOT NULL CHECK (json_valid(stats)),
    reason   TEXT,           -- why it ended; NULL for one that never did
    error    TEXT NOT NULL,
    trace    TEXT NOT NULL   -- name of its file in the folder of traces, or ''
) STRICT;
CREATE INDEX generation_by_trace ON generation (trace);

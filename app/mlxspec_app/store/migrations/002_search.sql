-- Full-text search. spaced() parts the characters of scripts that are written without spaces, so
-- that each is a word to the tokenizer; the index keeps its own copy of the text for snippets.
CREATE VIRTUAL TABLE search USING fts5 (
    text, tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3'
);
INSERT INTO search (rowid, text) SELECT id, spaced(text) FROM message WHERE text <> '';

CREATE TRIGGER message_added AFTER INSERT ON message WHEN new.text <> '' BEGIN
    INSERT INTO search (rowid, text) VALUES (new.id, spaced(new.text));
END;
CREATE TRIGGER message_changed AFTER UPDATE OF text ON message BEGIN
    DELETE FROM search WHERE rowid = old.id;
    INSERT INTO search (rowid, text) VALUES (new.id, spaced(new.text));
END;
CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN
    DELETE FROM search WHERE rowid = old.id;
END;

"""Finding, reading and checking what users have: folders, hub ids, GGUF files, tokenizers."""

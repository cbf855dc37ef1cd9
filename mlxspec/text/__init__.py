"""Between text and tokens: the tokenizer, the chat template, streamed text, reasoning marks."""

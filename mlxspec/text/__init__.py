"""Between text and tokens: tokenizer, chat template, prompts, streamed text, reasoning marks."""

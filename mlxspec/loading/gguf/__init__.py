"""GGUF files: header, config, tensors and tokenizer, under the names of Hugging Face."""

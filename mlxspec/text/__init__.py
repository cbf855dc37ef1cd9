"""What stands around tokens: chat template, checks of a prompt, streamed text, reasoning marks."""

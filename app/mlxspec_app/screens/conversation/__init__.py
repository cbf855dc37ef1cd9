"""The base of the screens with a conversation: its session, its frames, its views."""

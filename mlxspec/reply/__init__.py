"""One reply: its rounds as objects and events, and the guard around its drafter."""

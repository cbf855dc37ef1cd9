"""One reply: its text, its rounds on the device and as events, and the guard of its drafter."""

"""The widgets of replays and races."""

"""The training methods: one objective per file, and the table, which is counted."""

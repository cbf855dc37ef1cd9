"""The training methods: one objective a file, and the table, which is counted."""

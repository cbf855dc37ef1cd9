"""What servers tell of their replies: ours of all of them, others of one that was asked for."""

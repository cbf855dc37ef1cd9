"""The drafters of the EAGLE family: one small layer continues the target's hidden states."""

"""What replies are measured by: where two of them part, how far rows drift, short trials."""

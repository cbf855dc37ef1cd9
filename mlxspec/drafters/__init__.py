"""The methods that propose draft trees, one file each."""

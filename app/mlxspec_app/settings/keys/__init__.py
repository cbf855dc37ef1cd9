"""Every key in one table a screen; which keys the user may choose instead; how keys are written."""

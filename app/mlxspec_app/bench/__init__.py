"""What the app costs, measured: each module is a program that prints its figures."""

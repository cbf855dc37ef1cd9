"""The live feed of `mlxspec serve`, and prompts for such a server."""

"""The command `lastpage`."""

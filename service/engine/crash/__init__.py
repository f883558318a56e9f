"""Crashes: what they look like in logs, and which of them one is."""

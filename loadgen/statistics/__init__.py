"""Counts and samples of bounded size (pure)."""

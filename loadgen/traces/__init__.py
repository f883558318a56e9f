"""Traces of real requests."""

"""Environments of SGLang releases, built and shared."""

"""Requests and waves: what is planned, what is sent, and what became of it (pure)."""

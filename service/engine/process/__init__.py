"""An engine's process: command line, start, readiness, death, and an end that leaves nothing behind."""

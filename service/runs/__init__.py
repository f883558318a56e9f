"""A run and its life: states, queue, events, measures, verdict."""

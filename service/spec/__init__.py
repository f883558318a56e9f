"""Run specs: text in, values out."""

"""The controller's own metrics."""

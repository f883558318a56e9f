"""One run on an engine: preflight, launch, load, watch, measure, evidence."""

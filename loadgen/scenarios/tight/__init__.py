"""`tight`: every decode step takes the last free pages."""

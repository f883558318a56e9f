"""A run as it is shown: report.json, tables, hints, the map of the cells."""

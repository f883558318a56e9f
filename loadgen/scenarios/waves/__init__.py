"""`waves`: waves that stand in the spec."""

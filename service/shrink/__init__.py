"""`lastpage shrink`: makes a repro as short as it can while the engine still crashes in the same way."""

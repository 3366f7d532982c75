"""APIExports, APIBindings, schemas, permission claims and endpoint slices: their rules and their status. Pure."""

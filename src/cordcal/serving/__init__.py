"""Long work over files: apply, audit and construct in batches, skip rows, resume."""

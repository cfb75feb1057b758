"""Words in, batches out."""

"""What is learned and how it is scored: Task = loss(model, batch) + evaluate(model, batches)."""

"""Training on Lightning: batches, criterion, checkpoints that hold no code, and the fit itself."""

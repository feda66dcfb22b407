"""What every part uses: errors, files, locks, text for terminals, seeds, devices, progress, stored tensors."""

"""A trained model: what it is made of, how it predicts, how it is saved. Loads no trainer."""

"""The scikit-learn classifier of bags."""

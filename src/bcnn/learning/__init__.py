"""New classes for a packed network in seconds, without torch: its features, a new decoder. See `learn.learn`."""

"""The deterministic event loop that runs workflow code inside a turn."""

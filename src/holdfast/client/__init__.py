"""What programs talk to: `Engine`, `connect`, `Client` and `Handle`."""

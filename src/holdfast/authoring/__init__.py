"""What people write workflows and activities with."""

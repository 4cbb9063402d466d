"""The PostgreSQL store: for workers on many machines. Loaded only for a `postgresql://` URL."""

"""Read models for handles, the command line and, later, HTTP: plain values that stay valid after the store closes."""

"""What tests of Holdfast, and of programs built on it, are made of. Shipped with the package."""

"""Where everything durable lives: a narrow contract, and one package for each database that keeps it."""

"""How the cost of a step grows: with the history, closed instances, engines and workers, and payloads, on both stores.

``make bench-growth`` runs it; ``docs/performance.md`` has the recorded figures.
"""

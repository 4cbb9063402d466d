"""The worker: it claims instances, takes their turns, runs attempts, and does its share of the common duties.

`worker` builds the parts and is their life cycle. `duties` and `queries` hold `turns`, `turns` hold `attempts` and
runs, and all hold the context of the worker: session, registry, lease and committer. Decision 36 names the owners.
"""

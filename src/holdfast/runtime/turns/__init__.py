"""Turns of the instances that a worker owns.

`OwnedInstances` holds the live instances, `TurnTaker` takes their turns, `InboxReader` and `LocalEvents` bring them
messages. Four verbs end what is held. Each commits the completions that no turn has applied; only `evict` after a lost
lease drops them.

| verb | code | row in the store |
|---|---|---|
| `close` | torn down, bodies asked to stop | closed already |
| `evict` | torn down | left as it is: another worker owns it, or the last turn released it |
| `release` | torn down | released: any worker may claim it |
| `block` | torn down | BLOCKED with the reason: a worker with another build may claim it |
"""

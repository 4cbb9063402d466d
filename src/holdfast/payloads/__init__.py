"""Payloads: what workflows and activities take and return, as typed JSON. Never pickle.

`encoding` turns values into JSON by their annotations, `signature` does so for calls and hashes inputs, `failures` for
exceptions. `untrusted` checks JSON from outside, `limits` has the bounds.
"""

"""Turns of the instances that this worker owns: live code, messages, members to commit."""

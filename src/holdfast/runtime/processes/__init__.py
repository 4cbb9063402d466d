"""Bodies in processes of their own (``process=True``): they can be killed, and they die with their parent.

`pool` is the worker's side, `child` the program that runs there, and `messages` what they say to each other. A child
imports the module that defines the activity, by the name that the worker's own registry gives; nothing is pickled.
"""

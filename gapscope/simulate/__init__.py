"""Simulated FSDP2 training: runs whose truth is known, to test what the analysis says of them.

Nothing here is shared with the dependency model: both read the rules on their own, so that they
can disagree.
"""

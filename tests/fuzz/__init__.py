"""Mutated messages and files, thrown at everything that reads bytes of another party or from a disk.

    python -m tests.fuzz --messages 2000000 --seed 1

``targets`` lists the parsers and what they promise, ``mutation`` damages good input, ``fuzzing`` counts and judges.
"""

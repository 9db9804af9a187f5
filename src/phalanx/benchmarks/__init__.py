"""Benchmarks that a judge or a reward model scores: the published arithmetic, without the asking.

=============  ====================================================================================
file           what it holds
=============  ====================================================================================
alpaca_eval    raw and length-controlled win rate; ``alpaca_files`` reads its files
arena_hard     five labels in both orders, the rating against a baseline
mt_bench       two rated turns
judgebench     verdicts in both orders against a label
rewardbench    subsets, sections, weights
ppe            preference pairs and best of K, from scores
readers        the published files, into the records of ``records``
questions      what a contest asks, and files of a baseline's answers
=============  ====================================================================================

Rates are shares from 0 to 1. What cannot be read is missing and counted, never a tie or a number.
"""

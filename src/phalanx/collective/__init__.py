"""The ideas of collective alignment, pure: records in, records out.

Match-making, judging, aggregation, reputation and preference pairs. Nothing here touches a disk,
a network or a model: a function takes records and settings and returns records.
"""

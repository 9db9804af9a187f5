"""What people see of a run, from its ledger alone: terminal summary, one HTML page, Markdown.

``facts.gather`` reads every number once; the three renderers only lay them out.
"""

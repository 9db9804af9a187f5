"""Where jobs run. An executor has ``map(function, jobs)`` and nothing else."""

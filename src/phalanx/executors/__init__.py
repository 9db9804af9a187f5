"""Where jobs run: in this process, in processes of this machine, or on a Ray cluster.

Every executor has ``map(function, jobs)``: results in order. Those with workers also have
``start(function, jobs)``, which returns what is under way, in the shape of
:class:`phalanx.types.Work`: ``num_open``, ``wait``, ``stop``.
"""

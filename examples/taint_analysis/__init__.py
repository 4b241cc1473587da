"""Taint analysis of Python source: which untrusted data may reach which dangerous call, and how.

``analyze`` reads files without running them, lowers every function to a control flow graph of assignments and calls,
and asks the IFDS solver of ``vyre.lib.dataflow`` which variables may hold untrusted data where. The modules follow the
data:

* ``package`` finds and parses files; ``names`` and ``classes`` say what names mean and which class objects have.
* ``graphs`` lowers statements, ``expressions``, ``calls`` and ``guards`` what is in them, to the graphs of ``flow``.
* ``callgraph`` and ``facts`` choose the variables that matter, ``problem`` makes the IFDS problem of them.
* ``findings`` reads the solution; ``report`` and ``page`` show it as text, JSON and HTML.

``tables`` lists what is untrusted, dangerous and harmless. What is approximated stands at the top of each module.
"""

from taint_analysis.analysis import Result, Stage, analyze

__all__ = ["Result", "Stage", "analyze"]

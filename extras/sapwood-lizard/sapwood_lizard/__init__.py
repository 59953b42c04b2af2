"""Programs of lizard-slayer: a CUDA source, C structures, and Python beside them.

``directory`` reads a program, ``registration`` is what it becomes, ``store`` keeps it,
``launch`` checks and runs it; ``structures`` is what the programs themselves import.
"""

"""The tools, one a file, all in the shape that protocol.py names. None of them sees a gold answer."""

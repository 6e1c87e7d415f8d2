"""The driver of a coding agent: a program of the sandbox, which has these files as inputs. They import nothing of
Everturn."""

"""Compiled operators for CPU and CUDA: one folder per operator, with its wrapper and its sources.

`common` holds the C++ that all of them share; the modules here are what their wrappers share.
"""

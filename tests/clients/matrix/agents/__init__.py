"""Agents of the matrix: each is the smallest idiomatic tool-using agent on one package.

A script of this folder is started as a module of this package, so that a file may be called like the package it uses.
"""

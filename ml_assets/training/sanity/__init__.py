"""Seconds before the long run: is the network that would be trained sound, on the rows it has?"""

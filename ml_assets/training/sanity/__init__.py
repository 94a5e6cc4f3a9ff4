"""The sanity checks, seconds before the long run: is the network sound, on its real rows?"""

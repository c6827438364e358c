"""Readers of official files: each takes a record of the catalogue and the root, and returns the images.

What all have in common is done around them, in `regmixup.data.reading`: missing files, the official number of images,
sets that were rebuilt, and content that is known.
"""

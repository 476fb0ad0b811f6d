"""The pipeline of Torchproof: one module per step from a chapter's source to the site.

execute -> evidence -> stage -> render; `check` reads the sources, `build` runs the steps in order.
"""

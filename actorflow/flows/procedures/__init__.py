"""The procedures of the flow language, one small module per family.

``registry`` finds them by name.
"""

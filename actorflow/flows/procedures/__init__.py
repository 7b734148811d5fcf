"""The procedures of the flow language, one small module per family; see ``registry``."""

"""The policy lab: what would this batching policy do with your traffic?"""

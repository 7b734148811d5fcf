"""The interface of pykka: refs, ask and tell, proxies, and how an actor ends."""

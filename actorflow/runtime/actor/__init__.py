"""pykka's face: refs, ask and tell, proxies, and how an actor ends."""

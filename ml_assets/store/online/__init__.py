"""The online store: the newest features of each entity, for a look-up in milliseconds."""

"""What stores with tables in a relational database share: how members change the tables, and how they are read."""

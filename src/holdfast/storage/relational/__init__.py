"""The shared part of stores over a relational database: how members change the tables, and how they are read."""

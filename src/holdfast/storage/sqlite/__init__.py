"""The store on a SQLite file: one writer for each process, a queue between processes, full durability."""

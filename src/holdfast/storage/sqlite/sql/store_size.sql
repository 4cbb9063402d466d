-- A read: the size of the file, without its WAL.
SELECT pages.page_count * sizes.page_size FROM pragma_page_count() AS pages, pragma_page_size() AS sizes

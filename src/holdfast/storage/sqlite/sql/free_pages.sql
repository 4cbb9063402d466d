-- A read: the free pages of the file, if it can return them to the file system, and the size of a page.
SELECT CASE vacuum.auto_vacuum WHEN 2 THEN free.freelist_count ELSE 0 END, sizes.page_size
FROM pragma_auto_vacuum() AS vacuum, pragma_freelist_count() AS free, pragma_page_size() AS sizes

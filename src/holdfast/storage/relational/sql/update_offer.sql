UPDATE offers SET claim = ?, sequences = ? WHERE exec_id = ?

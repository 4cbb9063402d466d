-- In the transaction that ends the lease of its owner, and so once for each loss: the code of this instance was running
-- when the owner was lost (G12).
UPDATE instances SET losses = losses + 1 WHERE number = ? AND owner = ?

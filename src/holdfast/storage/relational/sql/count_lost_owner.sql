-- In the transaction that flips its owner, so once for each of them: this instance's code was running when it was lost (G12).
UPDATE instances SET losses = losses + 1 WHERE number = ? AND owner = ?

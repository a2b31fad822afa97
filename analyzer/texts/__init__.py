"""What the texts of a run say, and who heard them: numbers, tools' results, wordings of many languages."""

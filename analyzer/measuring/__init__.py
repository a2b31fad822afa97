"""How a method is measured: labelled runs in, scores with their intervals out."""

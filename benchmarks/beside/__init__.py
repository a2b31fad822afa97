"""The same runs in blamespan and in Phoenix: what a reader sees of the failed ones, after how many clicks."""

"""Commands that replay a recorded run with one answer changed."""

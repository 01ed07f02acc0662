"""Pages of one run or of several: static, self-contained, readable without having read a paper."""

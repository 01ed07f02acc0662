"""The rows of a dataset that tests make, read and break."""

ROWS = ["5,9,1,10", "7,9,2,20", "5,5,3,20", "9,7,-4,35", "5,9,1,40"]
"""src,dst,weight,time of the tiny dataset: three vertices, one self edge, one repeated pair."""

"""Races between commits: builds of revisions, interleaved runs of both, and a search by halves."""

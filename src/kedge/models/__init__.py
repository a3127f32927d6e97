"""What is learned from pairs: the pair model, maps, anchors, the translator. May import matching and below."""

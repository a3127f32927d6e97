"""What pairs teach: the pair model, maps, anchors, the translator. May import matching and below."""

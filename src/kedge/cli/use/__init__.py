"""Commands that use a run: to search, translate, project and classify vectors, and to hand it to other programs."""

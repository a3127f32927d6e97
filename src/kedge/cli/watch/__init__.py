"""Commands that watch an index: `drift`, `audit`, `canary`."""

"""The method: problem and schedule in, a match of all rows out. May import models and below; judging is injected."""

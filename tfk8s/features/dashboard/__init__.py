"""The live page: `tfk8s dashboard`."""

"""The way out of a local cluster's network: slirp4netns, or an HTTP(S) proxy."""

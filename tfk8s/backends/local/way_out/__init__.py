"""The way out of a local cluster's network: slirp4netns, pasta, or an HTTP(S) proxy."""

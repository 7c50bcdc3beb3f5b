// Package serve is what stands around the handlers of a daemon: listeners with their bounds, TLS that is read anew, a
// log of requests, and systemd.
package serve

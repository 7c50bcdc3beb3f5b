// Package budget bounds what the requests of all interfaces of a daemon cost together: bytes of bodies, and requests
// that wait.
package budget

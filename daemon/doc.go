// Package daemon is shuntd as a library: pools of queues, the interfaces that serve them, and what an operator needs
// around them. Command shuntd reads its configuration and runs it.
package daemon
